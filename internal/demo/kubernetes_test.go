package demo

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/docs/manifests"
)

// longestEnd is the time in which a Service returns after ctx ends.
const longestEnd = 15 * time.Second

// TestTheManifestsTellTheServiceWhatItUnderstands checks that each variable is a setting, the password is in a file, the probed
// paths are served on the probed ports, and a pod has the time for the end of the service and of its relay.
func TestTheManifestsTellTheServiceWhatItUnderstands(t *testing.T) {
	t.Parallel()
	all, err := manifests.Read("../../docker/kubernetes")
	require.NoError(t, err)
	seen := 0
	for _, c := range all {
		name, ours := strings.CutPrefix(c.Program, "demo-")
		if !ours {
			continue
		}
		seen++
		pgpass := filepath.Join(t.TempDir(), "pgpass")
		require.NoError(t, os.WriteFile(pgpass, []byte("*:*:*:*:of-this-test\n"), 0o600))
		var cfg Config
		for variable, value := range c.Env {
			value = strings.NewReplacer("/run/secrets/payment/pgpass", pgpass, "&sslrootcert=/run/trust/ca.pem", "").Replace(value)
			known := variable == "GOMEMLIMIT"
			for _, s := range cfg.settings() {
				if s.env == variable {
					require.NoError(t, s.set(value), variable)
					known = true
				}
			}
			require.True(t, known, "%s %s: %s is no setting of a service", c.File, c.Workload, variable)
		}
		cfg = cfg.withDefaults(name)
		require.NoError(t, cfg.Validate(), c.Workload)
		database, err := pgxpool.ParseConfig(cfg.DatabaseURL)
		require.NoError(t, err)
		require.Equal(t, "of-this-test", database.ConnConfig.Password, "the password is read from its file")
		_, port, err := net.SplitHostPort(cfg.Listen)
		require.NoError(t, err)
		require.Equal(t, port, strconv.Itoa(c.Ports["http"]))
		require.Equal(t, []manifests.Probe{{Path: "/livez", Port: "http"}, {Path: "/readyz", Port: "http"}}, c.Probes)
		require.Greater(t, c.Grace, longestEnd+21*time.Second, "the service's end, and then the relay's")
	}
	require.Equal(t, 1, seen)
}
