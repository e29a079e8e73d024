package devstack_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
)

func TestPostgresAnswersOverBothPaths(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, devstack.PostgresConfig{})
	address, err := p.CreateDatabase(t.Context(), `odd "name"`, "")
	require.NoError(t, err)
	require.Equal(t, p.URL(`odd "name"`), address)
	for _, address := range []string{address, p.SocketURL(`odd "name"`)} {
		require.Equal(t, `odd "name" postgres`, ask(t, address, "SELECT current_database() || ' ' || current_user"))
	}
	require.NoError(t, p.DropDatabase(t.Context(), `odd "name"`))
	require.NoError(t, p.DropDatabase(t.Context(), `odd "name"`), "an absent one")
}

func TestPostgresAsksForThePasswordOverTCP(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, devstack.PostgresConfig{})
	cfg, err := pgx.ParseConfig(p.URL(""))
	require.NoError(t, err)
	cfg.Password = "wrong"
	_, err = pgx.ConnectConfig(t.Context(), cfg)
	require.Error(t, err)
}

func TestPostgresHasThePasswordThatItIsGiven(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, devstack.PostgresConfig{Password: "it's local"})
	require.Contains(t, p.URL(""), "//postgres:it%27s%20local@127.0.0.1:")
	require.Equal(t, "1", ask(t, p.URL(""), "SELECT '1'"))
}

// A configured port is used or fails: other configuration may depend on it.
func TestAPortThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	_, err = devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Port: port})
	require.ErrorContains(t, err, "could not bind")
	_, err = devstack.StartKafka(t.Context(), devstack.KafkaConfig{Port: port})
	require.ErrorContains(t, err, "address already in use")
}

func TestPostgresIsDurableUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	require.Equal(t, "on", ask(t, startPostgres(t, devstack.PostgresConfig{}).URL(""), "SHOW fsync"))
	cfg := devstack.PostgresConfig{Settings: map[string]string{"fsync": "off", "application_name": "it's"}}
	p := startPostgres(t, cfg)
	require.Equal(t, "off", ask(t, p.URL(""), "SHOW fsync"))
	require.Equal(t, "it's", ask(t, p.URL(""), "SELECT reset_val FROM pg_settings WHERE name = 'application_name'"))
}

func TestPostgresKeepsWhatWasCommittedWhenKilled(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, devstack.PostgresConfig{})
	exec(t, p.URL(""), "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, p.Kill())
	_, err := pgx.Connect(t.Context(), p.URL(""))
	require.Error(t, err)
	require.NoError(t, p.Start(t.Context()))
	require.Equal(t, "1", ask(t, p.URL(""), "SELECT n::text FROM t"))
	require.Error(t, p.Start(t.Context()), "it runs already")
	require.NoError(t, p.Restart(t.Context()))
	require.Equal(t, "1", ask(t, p.URL(""), "SELECT n::text FROM t"))
}

func TestPostgresKeepsTheFolderItWasGiven(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "devstack-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))

	p := startPostgres(t, devstack.PostgresConfig{Dir: dir})
	exec(t, p.URL(""), "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, p.Close())
	require.FileExists(t, filepath.Join(dir, "postgres.log"))

	p = startPostgres(t, devstack.PostgresConfig{Dir: dir})
	require.Equal(t, "1", ask(t, p.URL(""), "SELECT n::text FROM t"))
}

func TestPostgresSaysWhyItDidNotStart(t *testing.T) {
	t.Parallel()
	_, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Settings: map[string]string{"shared_buffers": "many"}})
	require.ErrorContains(t, err, `shared_buffers`)
}

func TestPostgresNamesAFolderItMayNotEnter(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root's server runs as another user")
	}
	dir := t.TempDir() // in a folder of mode 0700
	_, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Dir: dir})
	require.ErrorContains(t, err, filepath.Dir(dir))
}

func TestDropDatabaseFreesAReplicationSlotInUse(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, devstack.PostgresConfig{})
	address, err := p.CreateDatabase(t.Context(), "streamed", "")
	require.NoError(t, err)
	exec(t, address, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')", "CREATE PUBLICATION p FOR ALL TABLES")
	cfg, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	cfg.RuntimeParams["replication"] = "database"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	conn.PgConn().Frontend().SendQuery(&pgproto3.Query{
		String: `START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')`,
	})
	require.NoError(t, conn.PgConn().Frontend().Flush())
	answer, err := conn.PgConn().ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.IsType(t, &pgproto3.CopyBothResponse{}, answer)
	require.NoError(t, p.DropDatabase(t.Context(), "streamed"))
}

func startPostgres(t *testing.T, cfg devstack.PostgresConfig) *devstack.Postgres {
	t.Helper()
	p, err := devstack.StartPostgres(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func ask(t *testing.T, address, query string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&answer))
	require.NoError(t, conn.Close(t.Context()))
	return answer
}

func exec(t *testing.T, address string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	for _, statement := range statements {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(t.Context()))
}
