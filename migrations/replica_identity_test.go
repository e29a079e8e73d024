package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestEachTableHasAReplicaIdentity: another program's publication, such as Debezium's own, may be for all tables of the database. From then
// on Postgres refuses each UPDATE and DELETE of a table without a replica identity.
func TestEachTableHasAReplicaIdentity(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	rows, err := pool.Query(t.Context(), `SELECT c.relname::text
		FROM pg_class AS c
		WHERE c.relnamespace = 'troupe'::regnamespace
		  AND c.relkind IN ('r', 'p')
		  AND c.relreplident <> 'f'
		  AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)
		ORDER BY 1`)
	require.NoError(t, err)
	without, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, without)
}
