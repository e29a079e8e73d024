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

// A pass goes on behind what it has claimed. What commits meanwhile below that place must not be overtaken by what was
// written after it.
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
	p := &poll{session: session{pool: pool}, lease: l, batch: 2, passes: time.Hour}
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

// What was not settled is claimed again, lowest first, and nothing that was read ahead goes before it.
func TestAPassEndsWithARowThatIsNotSettled(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) SELECT 't', 'k', 'T' FROM generate_series(1, 6)")
	require.NoError(t, err)
	p := &poll{session: session{pool: pool}, lease: l, batch: 2, passes: time.Hour}
	defer p.close()
	items, err := p.claim(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.NoError(t, p.remove(t.Context(), items[:1]))
	require.Equal(t, []string{"k2", "k3"}, claimedNow(t, p))
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
		p := &poll{session: session{pool: pool}, lease: &lease{shard: shard, shards: 4, holder: l.holder, term: l.term, length: l.length}, batch: 100, passes: time.Hour}
		claims, last := 0, int64(0)
		for {
			items, err := p.claim(t.Context(), 0)
			require.NoError(t, err)
			if len(items) == 0 || items[0].row.Position <= last { // the next pass: nothing was removed
				break
			}
			claims++
			for _, i := range items {
				require.False(t, seen[i.row.Position], "twice")
				last, seen[i.row.Position], i.settled = i.row.Position, true, true // this is no holder of the other shards
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
	p := &poll{session: session{pool: pool}, lease: l, batch: 100, passes: time.Hour}
	defer p.close()
	require.NoError(t, p.connect(t.Context()))
	var snapshot string
	require.NoError(t, p.conn.QueryRow(t.Context(), "SELECT pg_current_snapshot()::text").Scan(&snapshot))
	ids := make([][16]byte, 0, 100)
	rows, err := p.conn.Query(t.Context(), "SELECT id FROM troupe.outbox ORDER BY position LIMIT 100")
	require.NoError(t, err)
	var id [16]byte
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		ids = append(ids, id)
		return nil
	})
	require.NoError(t, err)
	for _, statistics := range []string{"none", "some"} {
		for _, shards := range []int{1, 4} {
			l.divided(shards)
			for name, args := range map[string]pg.Args{
				"read_on":      {"after": 100, "snapshot": snapshot, "rows": 100, "bytes": claimBytes},
				"claim_rows":   {"rows": 100, "bytes": claimBytes},
				"delete_range": {"lowest": 1, "highest": 100, "ids": ids},
			} {
				tx, err := p.conn.Begin(t.Context())
				require.NoError(t, err)
				found, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) "+statement(name), pgx.QueryExecModeCacheDescribe,
					p.scope().args(l.args(args)))
				require.NoError(t, err)
				plan, err := pgx.CollectRows(found, pgx.RowTo[string])
				require.NoError(t, err)
				require.NoError(t, tx.Rollback(t.Context()))
				text := strings.Join(plan, "\n")
				require.NotRegexp(t, `Sort|Bitmap|Hash|Seq Scan on outbox_\d|rows=\d{4,} `, text, "%s, statistics: %s", name, statistics)
				require.Regexp(t, `Index Scan using outbox_0_pkey`, text, name)
			}
		}
		_, err = pool.Exec(t.Context(), "ANALYZE troupe.outbox, troupe.outbox_trouble")
		require.NoError(t, err)
	}
}
