package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
)

func claimedNow(t *testing.T, p *poll) (values []string) {
	t.Helper()
	items, err := p.claim(t.Context(), 0)
	require.NoError(t, err)
	for _, i := range items {
		values = append(values, fmt.Sprintf("%s%d", i.key, i.row.Position))
	}
	if len(items) > 0 {
		require.NoError(t, p.remove(t.Context(), items))
	}
	return values
}

// A pass continues after the rows that it has claimed. A row that commits meanwhile below that position must not be overtaken
// by rows that were written after it.
func TestAPassOvertakesNothingThatCommitsLate(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	insert := func(db querier, key string) {
		_, err := db.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', $1, 'T')", key)
		require.NoError(t, err)
	}
	late, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = late.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', 'late', 'T')") // position 1
	require.NoError(t, err)
	for range 6 {
		insert(pool, "k")
	}
	p := &poll{session: session{pool: pool}, lease: l, batch: 2, passLimit: time.Hour}
	defer p.close()
	require.Equal(t, []string{"k2", "k3"}, claimedNow(t, p))
	require.NotNil(t, p.ahead, "the next claim is under way")
	require.NoError(t, late.Commit(t.Context()))
	insert(pool, "late") // position 8, by a writer that saw position 1
	p.join(t.Context())
	p.begin() // as if the next claim were read only now
	require.Equal(t, []string{"k4", "k5"}, claimedNow(t, p))
	require.Equal(t, []string{"k6", "k7"}, claimedNow(t, p))
	require.Equal(t, []string{"late1", "late8"}, append(claimedNow(t, p), claimedNow(t, p)...))
	require.Empty(t, claimedNow(t, p))
}

// Rows that are restored from a dump become visible at once, and have transaction ids that this cluster may have assigned long ago. A pass
// has none of them: it has passed some of their positions.
func TestAPassHasNoRowsThatAreRestoredMeanwhile(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("SELECT setval('troupe.outbox_position_seq', 10)")
	exec("INSERT INTO troupe.outbox (topic, key, type) SELECT 't', 'k', 'T' FROM generate_series(1, 4)")
	p := &poll{session: session{pool: pool}, lease: l, batch: 2, passLimit: time.Hour}
	defer p.close()
	require.Equal(t, []string{"k11", "k12"}, claimedNow(t, p))
	p.join(t.Context())
	exec(`INSERT INTO troupe.outbox (position, xid, topic, key, type) OVERRIDING SYSTEM VALUE
		SELECT position, '3', 't', 'old', 'T' FROM unnest('{1, 100}'::bigint[]) AS position`)
	require.Equal(t, []string{"k13", "k14"}, claimedNow(t, p))
	require.Equal(t, []string{"old1", "old100"}, append(claimedNow(t, p), claimedNow(t, p)...))
}

// Rows that were not settled are claimed again, lowest first, before any row that was read ahead.
func TestAPassEndsWithARowThatIsNotSettled(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) SELECT 't', 'k', 'T' FROM generate_series(1, 6)")
	require.NoError(t, err)
	p := &poll{session: session{pool: pool}, lease: l, batch: 2, passLimit: time.Hour}
	defer p.close()
	items, err := p.claim(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.NoError(t, p.remove(t.Context(), items[:1]))
	require.Equal(t, []string{"k2", "k3"}, claimedNow(t, p))
}

// A row that is parked ends no pass: the next claim is read ahead, without the rows that wait behind it.
func TestAPassGoesOnBesideRowsThatWaitBehindAParkedOne(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	p := &poll{session: session{pool: pool}, lease: l, batch: 2, passLimit: time.Hour}
	defer p.close()
	insertAlternating(t, pool, 14) // hot1, k2, hot3, k4, …
	noteFailures(t, pool, 1, "parked")
	noteFailures(t, pool, 12, "parked")
	require.Equal(t, []string{"k2", "k4"}, claimedNow(t, p))
	for _, want := range [][]string{{"k6", "k8"}, {"k10"}} {
		require.NotNil(t, p.ahead, "the next claim is under way")
		require.Equal(t, want, claimedNow(t, p))
	}
	require.Nil(t, p.ahead)
	require.Empty(t, claimedNow(t, p))
}

// Rows that were left out of the first claim of a pass have lower positions than its next rows: once they no longer wait, the
// pass ends, and they are published first.
func TestAPassEndsWhenRowsThatItLeftOutWaitNoMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, status, change string }{
		{"the parked row was given up", "parked", "WITH row AS (DELETE FROM troupe.outbox WHERE position = 1) DELETE FROM troupe.outbox_failures"},
		{"the parked row's failure was deleted", "parked", "DELETE FROM troupe.outbox_failures"},
		{"the row that is tried again is published", "due", ""},
		{"another row is parked", "parked", `INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
			SELECT position, id, topic, 'k', 'parked', 1, 1, 'e' FROM troupe.outbox WHERE position = 14`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, l := tenure(t)
			p := &poll{session: session{pool: pool}, lease: l, batch: 2, passLimit: time.Hour}
			defer p.close()
			insertAlternating(t, pool, 20)
			noteFailures(t, pool, 1, c.status)
			var got []string
			for n := range 12 {
				got = append(got, claimedNow(t, p)...)
				if n == 1 && c.change != "" {
					_, err := pool.Exec(t.Context(), c.change)
					require.NoError(t, err)
				}
			}
			last := map[string]int{}
			for _, name := range got {
				var position int
				key := strings.TrimRight(name, "0123456789")
				_, err := fmt.Sscan(strings.TrimPrefix(name, key), &position)
				require.NoError(t, err)
				require.Greater(t, position, last[key], "%v", got)
				last[key] = position
			}
			var left int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM troupe.outbox o WHERE NOT EXISTS (
				SELECT FROM troupe.outbox_failures t WHERE t.order_key = convert_to(o.key, 'UTF8') AND t.position <= o.position)`).Scan(&left))
			require.Zero(t, left, "%v", got)
		})
	}
}

// Rows that a stream has recorded behind others, and whose keys are no longer blocked, keep their order in a pass.
func TestAPassTakesRowsThatAStreamRecordedBehindOthers(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	p := &poll{session: session{pool: pool}, lease: l, batch: 2, passLimit: time.Hour}
	defer p.close()
	insertAlternating(t, pool, 10)
	for _, position := range []int{5, 7, 9} {
		noteFailures(t, pool, position, "waiting")
	}
	for _, want := range [][]string{{"hot1", "k2"}, {"hot3", "k4"}, {"hot5", "k6"}, {"hot7", "k8"}, {"hot9", "k10"}} {
		require.Equal(t, want, claimedNow(t, p))
	}
	require.Empty(t, claimedNow(t, p))
	var lines int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox_failures").Scan(&lines))
	require.Zero(t, lines)
}

// insertAlternating inserts rows of keys hot and k by turns.
func insertAlternating(t *testing.T, db querier, rows int) {
	t.Helper()
	_, err := db.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type)
		SELECT 't', CASE n % 2 WHEN 1 THEN 'hot' ELSE 'k' END, 'T' FROM generate_series(1, $1::int) AS n`, rows)
	require.NoError(t, err)
}

// noteFailures records a row; due: as retrying, and its time has come.
func noteFailures(t *testing.T, db querier, position int, status string) {
	t.Helper()
	_, err := db.Exec(t.Context(), `INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, next_try, attempts, max_attempts, last_error)
		SELECT position, id, topic, convert_to(key, 'UTF8'), CASE $2 WHEN 'due' THEN 'retrying' ELSE $2 END, CASE $2 WHEN 'due' THEN now() END,
		       CASE $2 WHEN 'waiting' THEN 0 ELSE 1 END, 1, 'e'
		FROM troupe.outbox WHERE position = $1`, position, status)
	require.NoError(t, err)
}

// Each row belongs to one shard, and all rows of a key to the same, be it text or bytes.
func TestEachRowBelongsToOneShard(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, key_bytes, type)
		SELECT 't', CASE WHEN n % 3 = 0 THEN 'k' || n / 10 END, CASE WHEN n % 3 = 1 THEN convert_to('k' || n / 10, 'UTF8') END, 'T'
		FROM generate_series(1, 900) AS n`)
	require.NoError(t, err)
	shardOf, seen := make(map[string]int), make(map[int64]bool)
	for shard := range 4 {
		p := &poll{session: session{pool: pool}, lease: &lease{shard: shard, shards: 4, holder: l.holder, term: l.term, length: l.length}, batch: 100, passLimit: time.Hour}
		claims, last := 0, int64(0)
		for {
			items, err := p.claim(t.Context(), 0)
			require.NoError(t, err)
			if len(items) == 0 || items[0].row.Position <= last { // the next pass: no row was removed
				break
			}
			claims++
			for _, i := range items {
				require.False(t, seen[i.row.Position], "twice")
				last, seen[i.row.Position], i.settled = i.row.Position, true, true // the lease of the other shards is not held here
				if i.key != nil {
					other, known := shardOf[string(i.key)]
					require.True(t, !known || other == shard, "key %s in shards %d and %d", i.key, other, shard)
					shardOf[string(i.key)] = shard
				}
			}
		}
		require.Greater(t, claims, 1)
		p.close()
	}
	require.Len(t, seen, 900)
}

// The statements of a backlog walk the key upwards and stop: their plans are the same with and without statistics, and with
// one shard or several.
func TestPlansOfABacklog(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) SELECT 't', 'k' || n, 'T' FROM generate_series(1, 20000) AS n")
	require.NoError(t, err)
	p := &poll{session: session{pool: pool}, lease: l, batch: 100, passLimit: time.Hour}
	defer p.close()
	require.NoError(t, p.connect(t.Context()))
	of := pass{after: 100}
	require.NoError(t, p.conn.QueryRow(t.Context(), "SELECT pg_current_snapshot()::text").Scan(&of.snapshot))
	require.NoError(t, p.conn.QueryRow(t.Context(), readBlocking).Scan(&of.blocking))
	positions, ids := make([]int64, 0, 100), make([][16]byte, 0, 100)
	rows, err := p.conn.Query(t.Context(), "SELECT position, id FROM troupe.outbox ORDER BY position LIMIT 100")
	require.NoError(t, err)
	var position int64
	var id [16]byte
	_, err = pgx.ForEachRow(rows, []any{&position, &id}, func() error {
		positions, ids = append(positions, position), append(ids, id)
		return nil
	})
	require.NoError(t, err)
	for _, statistics := range []string{"none", "some"} {
		for _, shards := range []int{1, 4} {
			l.setShards(shards)
			for name, args := range map[string]pg.Args{
				"read_on":      of.args(pg.Args{"rows": 100, "bytes": claimBytes}),
				"claim_rows":   {"rows": 100, "retried": 50, "bytes": claimBytes},
				"delete_range": {"lowest": 1, "highest": 100, "positions": positions, "ids": ids},
			} {
				tx, err := p.conn.Begin(t.Context())
				require.NoError(t, err)
				found, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) "+statement(name), pgx.QueryExecModeCacheDescribe,
					of.args(p.scope().args(l.args(args))))
				require.NoError(t, err)
				plan, err := pgx.CollectRows(found, pgx.RowTo[string])
				require.NoError(t, err)
				require.NoError(t, tx.Rollback(t.Context()))
				text := strings.Join(plan, "\n")
				require.NotRegexp(t, `Sort|Bitmap|Hash|Seq Scan on outbox_\d|rows=\d{4,} `, text, "%s, statistics: %s", name, statistics)
				require.Regexp(t, `Index Scan using outbox_0_pkey`, text, name)
			}
		}
		_, err = pool.Exec(t.Context(), "ANALYZE troupe.outbox, troupe.outbox_failures")
		require.NoError(t, err)
	}
}
