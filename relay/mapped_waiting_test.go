package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/pg"
)

// Rows of a table with a mapping that wait behind a parked one are read once, and again when the parked row is gone.
func TestRowsOfAMappedTableThatWaitAreLookedAtOnce(t *testing.T) {
	t.Parallel()
	const behind = 3000
	pool, lease := tenure(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec("INSERT INTO troupe.mapped_tables (name) VALUES ('public.orders'), ('public.others')")
	record := func(table, key, status string, rows int) {
		t.Helper()
		exec(`INSERT INTO troupe.mapped_failures (table_name, id, event_id, topic, order_key, status, next_try, attempts, max_attempts, last_error, row)
			SELECT $1, gen_random_uuid(), '', 't', $2, CASE $3 WHEN 'due' THEN 'retrying' ELSE $3 END, CASE $3 WHEN 'due' THEN now() END,
			       CASE $3 WHEN 'waiting' THEN 0 ELSE 1 END, 1, 'e', '[]' FROM generate_series(1, $4::int)`, table, []byte(key), status, rows)
	}
	mapped, err := mapping.New(mapping.Config{})
	require.NoError(t, err)
	table, err := newMappedTable("public.orders", mapped)
	require.NoError(t, err)
	l := &ledger{db: &server{Pool: pool}, lease: lease, table: table}
	require.NoError(t, l.load(t.Context()))
	due := func() (positions []int64) {
		t.Helper()
		items, err := l.due(t.Context())
		require.NoError(t, err)
		for _, i := range items {
			positions = append(positions, i.row.Position)
		}
		return positions
	}
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	read := func() int {
		t.Helper()
		exec("ANALYZE troupe.mapped_failures")
		return max(rowsRead(t, conn.Conn(), readMappedBlocking, table.args(nil)),
			rowsRead(t, conn.Conn(), claimMappedFailures, table.args(pg.Args{"rows": 1000, "after": l.blockedBefore, "bytes": claimBytes})))
	}

	record("public.orders", "hot", "parked", 1)
	record("public.others", "free", "waiting", 10)
	record("public.orders", "hot", "waiting", behind) // positions 12 to 3011
	require.GreaterOrEqual(t, read(), behind, "before the first look")
	require.Empty(t, due())
	require.Less(t, read(), 100)

	record("public.orders", "late", "due", 1)
	record("public.orders", "gone", "waiting", 2)
	require.Equal(t, []int64{3012, 3013, 3014}, due(), "recorded since")
	exec("DELETE FROM troupe.mapped_failures WHERE position >= 3012")
	require.Empty(t, due())
	require.Less(t, read(), 100)

	exec("UPDATE troupe.mapped_failures SET status = 'retrying', next_try = now() WHERE position = 1")
	require.Equal(t, []int64{1}, due())
	exec("DELETE FROM troupe.mapped_failures WHERE position = 1")
	positions := due()
	require.Len(t, positions, 1000)
	require.EqualValues(t, 12, positions[0], "nothing waits any more")
}
