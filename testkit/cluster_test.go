package testkit

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestRunDropsTheDatabasesOfAKilledRunOnly(t *testing.T) {
	server := Postgres(t)
	alive := Database(t)
	t.Setenv("TROUPE_POSTGRES", server.URL(""))

	killed, err := openCluster(t.Context())
	require.NoError(t, err)
	left, err := killed.migrated(t.Context())
	require.NoError(t, err)
	session := killed.lock.PgConn().PID()
	require.NoError(t, killed.lock.Close(t.Context()), "as the end of the process would")
	Wait(t, "the end of the killed run's session", func() (gone bool, err error) { // its server process takes a moment to end
		err = alive.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = $1)", session).Scan(&gone)
		return gone, err
	})

	next, err := openCluster(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, next.Close()) })
	_, err = pgx.Connect(t.Context(), server.URL(left))
	require.Error(t, err)
	require.NoError(t, alive.Ping(t.Context()))
}
