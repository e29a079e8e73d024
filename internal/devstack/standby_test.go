package devstack_test

import (
	"os"
	programs "os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
)

func TestACopyOfAServerStartsAsAStandby(t *testing.T) {
	t.Parallel()
	home, err := os.MkdirTemp("", "standby") // not t.TempDir: root runs a server as another user, and that user could not read it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	require.NoError(t, os.Chmod(home, 0o755))
	start := func(name string) *devstack.Postgres {
		p, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Dir: filepath.Join(home, name), Password: "standby"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}
	a := start("a")
	require.NoError(t, a.Stop(t.Context()))
	require.NoError(t, programs.Command("cp", "-a", filepath.Join(home, "a"), filepath.Join(home, "b")).Run())
	signal := filepath.Join(home, "b", "data", "standby.signal")
	require.NoError(t, programs.Command("cp", "-a", filepath.Join(home, "b", "data", "PG_VERSION"), signal).Run()) // with its owner
	b := start("b")
	conn, err := pgx.Connect(t.Context(), b.URL(""))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	var standby bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_is_in_recovery()").Scan(&standby))
	require.True(t, standby)
}
