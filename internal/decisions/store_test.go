package decisions_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// Both stores pass the same suite: promise A09.
func TestStores(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		testStore(t, func(t testing.TB, d *saga.Definition) transact {
			m, err := decisions.NewMemory(time.Now(), d)
			require.NoError(t, err)
			return m.Within
		})
	})
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		testStore(t, func(t testing.TB, d *saga.Definition) transact {
			pool := testkit.Database(t)
			_, err := pool.Exec(t.Context(), "INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, 'visit', 1, $2)",
				d.Hash(), string(d.JSON()))
			require.NoError(t, err)
			return func(do func(decisions.Store) error) error {
				return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					return do(decisions.NewPostgres(tx, "flow.hotel", "flow.hotel"))
				})
			}
		})
	})
}
