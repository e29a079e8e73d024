package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
)

// Claims of rows that wait behind a parked row read each row a few times, also before Postgres has statistics of the table: the
// planner once read all rows of the table for each of them.
func TestClaimsOfWaitingRowsReadEachOnceWithoutStatistics(t *testing.T) {
	t.Parallel()
	const behind = 6000
	const recordOutbox = `
		WITH o AS (INSERT INTO troupe.outbox (topic, key, type) SELECT 't', 'hot', 'T' FROM generate_series(0, $1::int) RETURNING position, id)
		INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		SELECT position, id, 't', 'hot', CASE position WHEN 1 THEN 'parked' ELSE 'waiting' END, CASE position WHEN 1 THEN 1 ELSE 0 END, 1, 'e'
		FROM o`
	for _, c := range []struct {
		name, record, claim string
		args                pg.Args
	}{
		{"mapped table", `
			INSERT INTO troupe.mapped_failures (table_name, id, event_id, topic, order_key, status, attempts, max_attempts, last_error, row)
			SELECT 'public.orders', gen_random_uuid(), '', 't', 'hot', CASE n WHEN 0 THEN 'parked' ELSE 'waiting' END, least(1 - least(n, 1), 1), 1, 'e', to_jsonb(repeat('x', 500))
			FROM generate_series(0, $1::int) AS n`,
			claimMappedFailures, pg.Args{"table": "public.orders", "rows": 1000, "after": 1, "bytes": claimBytes}},
		{"troupe.outbox", recordOutbox, claimFailures, pg.Args{"rows": 1000, "from": 1, "bytes": claimBytes}},
		{"troupe.outbox, the first row that is not blocked", recordOutbox, firstUnblocked, pg.Args{"from": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, _ := tenure(t)
			_, err := pool.Exec(t.Context(), `
				ALTER TABLE troupe.mapped_failures SET (autovacuum_enabled = off);
				ALTER TABLE troupe.outbox_failures SET (autovacuum_enabled = off);
				INSERT INTO troupe.mapped_tables (name) VALUES ('public.orders')`)
			require.NoError(t, err)
			_, err = pool.Exec(t.Context(), c.record, behind)
			require.NoError(t, err)
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			defer conn.Release()
			require.Less(t, rowsReadInAll(t, conn.Conn(), c.claim, c.args), 20*behind)
		})
	}
}
