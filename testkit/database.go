package testkit

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

const (
	poolSize   = 20
	closeLimit = 4 * time.Minute // a DROP DATABASE waits for a checkpoint, and many tests may end at once
)

// Database returns a pool on a new database with Troupe's tables, for this test only. The test's Cleanup closes the pool, fails
// the test if a connection was not released, and drops the database.
func Database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	c := databases.get(t)
	template, err := c.migrated(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	config, err := pgxpool.ParseConfig(createDatabase(t, c, template))
	require.NoError(t, err)
	config.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(closeLimit):
			t.Errorf("%d connections of the test's pool were not released", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// DatabaseURL returns the URL of a pool's database, for code that connects by itself.
func DatabaseURL(_ testing.TB, pool *pgxpool.Pool) string { return pool.Config().ConnString() }

// EmptyDatabase returns the URL of a new database without any table, for this test only. The test's Cleanup drops it.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	return createDatabase(t, databases.get(t), "")
}

func createDatabase(t testing.TB, c *cluster, template string) string {
	t.Helper()
	name := c.nextName()
	address, err := c.CreateDatabase(t.Context(), name, template)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		require.NoError(t, c.DropDatabase(ctx, name))
	})
	return address
}
