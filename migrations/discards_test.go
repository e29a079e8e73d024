package migrations_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A relay asks at each load for discards of its own outbox. It reads none of another outbox, of which there may be a million.
func TestNoDiscardOfAnotherOutboxIsRead(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox_repairs (actor, action, reason, table_name, row_position, row_id, topic, attempts, last_error) "+
		"SELECT 'ann', 'discard', 'ticket 1', 'public.a', i, gen_random_uuid(), 't', 1, 'e' FROM generate_series(1, 20000) i")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "ANALYZE troupe.outbox_repairs")
	require.NoError(t, err)
	statement, err := os.ReadFile("../relay/sql/any_discard.sql")
	require.NoError(t, err)
	for _, table := range []string{"", "public.b"} {
		rows, err := pool.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS off) "+string(statement), pgx.NamedArgs{"from": "0/0", "table": table})
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		require.Contains(t, plan, "outbox_repairs_discards")
		require.NotContains(t, plan, "Rows Removed by Filter")
	}
}
