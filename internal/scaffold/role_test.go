//go:build unix

package scaffold_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/scaffold"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestANewServiceServesWithTheRoleOfItsReadme: the owner makes the tables with the command migrate, and a role with the rights of a
// participant, which may make no table, serves.
func TestANewServiceServesWithTheRoleOfItsReadme(t *testing.T) {
	t.Parallel()
	s := service(t)
	files, err := s.Files()
	require.NoError(t, err)
	folder := filepath.Join(t.TempDir(), s.Name)
	require.NoError(t, scaffold.Write(folder, files))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "program", ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	url := testkit.EmptyDatabase(t)
	program := func(url string, more []string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "program"), args...)
		cmd.Env = append([]string{"DATABASE_URL=" + url, "KAFKA_BROKERS=" + strings.Join(testkit.Kafka(t), ",")}, more...)
		return cmd
	}
	out, err = program(url, []string{"KAFKA_BROKERS="}, "migrate").CombinedOutput() // a job that makes tables knows no brokers
	require.NoError(t, err, string(out))
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	role := grantstest.New(t, pool, grants.Participant)
	_, err = pool.Exec(t.Context(), "REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT SELECT, INSERT ON "+s.Table()+" TO "+role.Name)
	require.NoError(t, err)

	out, err = program(role.URL(), nil).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "make the tables: ")
	require.Contains(t, string(out), "run the command migrate with a role that may, and set MIGRATE=false for this one")

	serving := program(role.URL(), []string{"MIGRATE=false"})
	log, err := serving.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, serving.Start())
	lines, text := bufio.NewScanner(log), ""
	for !strings.Contains(text, "partitions assigned") && lines.Scan() {
		text += lines.Text() + "\n"
	}
	require.Contains(t, text, "partitions assigned")
	require.NoError(t, serving.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
		text += lines.Text() + "\n"
	}
	require.NoError(t, serving.Wait(), text)
	require.NotContains(t, text, "permission denied")
}
