package composetest

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// The compose file that troupe init writes is one, and builds its relay from this checkout.
func TestTheComposeFileOfANewServiceLoads(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "seats")
	out, err := exec.CommandContext(t.Context(), "go", "-C", "../..", "run", "./cmd/troupe", "init", folder).CombinedOutput()
	require.NoError(t, err, string(out))
	options, err := cli.NewProjectOptions([]string{filepath.Join(folder, "docker-compose.yml")})
	require.NoError(t, err)
	project, err := options.LoadProject(context.Background())
	require.NoError(t, err)
	require.Equal(t, "seats", project.Name)
	checkout, err := filepath.Abs("../..")
	require.NoError(t, err)
	for name, s := range project.Services {
		for _, p := range s.Ports {
			require.Equal(t, "127.0.0.1", p.HostIP, name)
		}
		if s.Build != nil {
			require.Equal(t, checkout, s.Build.Context)
			require.Equal(t, "outbox-relay", s.Build.Target)
			require.NotNil(t, s.Environment["DATABASE_URL"], name)
		}
		for on, d := range s.DependsOn {
			if d.Condition == types.ServiceConditionHealthy {
				require.NotNil(t, project.Services[on].HealthCheck, on)
			}
		}
	}
	require.Equal(t, types.ServiceConditionCompletedSuccessfully, project.Services["relay"].DependsOn["migrate"].Condition)
}
