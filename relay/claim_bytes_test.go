package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
)

// TestLongTopicsCountAsMemory: a stream read 300 rows whose topics had 8 MB, of some kilobytes each on disk, and the relay took 12.6 GB.
// Then the statement that records their failure was larger than a connection can send, again after each restart.
func TestLongTopicsCountAsMemory(t *testing.T) {
	t.Parallel()
	for _, f := range []field{topic, messageType} {
		w, known := &window{}, words{}
		rows := 0
		for ; rows < windowRows && !w.full(); rows++ {
			w.push(item{})
			require.NoError(t, w.set(&w.items[rows], f, []byte(strings.Repeat("t", 100_000)+string(rune('a'+rows))), known))
		}
		require.Equal(t, windowBytes/100_000+1, rows)
		require.Empty(t, known, "long texts are not cached")
		w.clear()
		require.False(t, w.full())
		w.push(item{})
		require.NoError(t, w.set(&w.items[0], f, []byte("order.payment.commands"), known))
		require.Len(t, known, 1)
	}
}

// TestAClaimEndsAtItsBytes: rows that were refused, up to 1,000, were read with their payloads at once when their topic was there again.
func TestAClaimEndsAtItsBytes(t *testing.T) {
	t.Parallel()
	const rows, most = 12, 6 // claimBytes and one row
	for _, c := range []struct{ name, columns string }{
		{"payload", `'t', n::text, 'T', convert_to(repeat('x', 1000000), 'UTF8')`},
		{"key", `'t', repeat('k', 1000000) || n, 'T', ''`},
		{"topic", `repeat('t', 1000000) || n, n::text, 'T', ''`},
		{"type", `'t', n::text, repeat('T', 1000000), ''`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, l := tenure(t)
			exec := func(sql string, args ...any) {
				t.Helper()
				_, err := pool.Exec(t.Context(), sql, args...)
				require.NoError(t, err)
			}
			exec(`INSERT INTO troupe.outbox (topic, key, type, payload) SELECT `+c.columns+` FROM generate_series(1, $1::int) AS n`, rows)
			p := &poll{session: session{pool: pool}, lease: l, batch: 100, passes: time.Hour}
			items, err := p.claim(t.Context(), 0)
			require.NoError(t, err)
			require.LessOrEqual(t, len(items), most, "new rows")
			settleAll(items)
			next, err := p.claim(t.Context(), 0)
			require.NoError(t, err)
			require.LessOrEqual(t, len(next), most, "the next new rows")
			require.Greater(t, next[0].row.Position, items[len(items)-1].row.Position)
			p.forget()
			p.close()

			exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, next_try, last_error)
				SELECT position, id, 't', convert_to('k' || position, 'UTF8'), 'retrying', 1, 9, now(), 'e' FROM troupe.outbox`)
			failed := &ledger{db: &server{Pool: pool}, lease: l}
			var seen []int64
			for len(seen) < rows {
				items, err := failed.due(t.Context())
				require.NoError(t, err)
				require.NotEmpty(t, items)
				require.LessOrEqual(t, len(items), most, "refused rows")
				for _, i := range items {
					seen = append(seen, i.row.Position)
					exec("DELETE FROM troupe.outbox_failures WHERE position = $1", i.row.Position)
				}
			}
			require.IsIncreasing(t, seen)
		})
	}
	t.Run("mapped", func(t *testing.T) {
		t.Parallel()
		pool, _ := tenure(t)
		_, err := pool.Exec(t.Context(), `
			INSERT INTO troupe.mapped_tables (name) VALUES ('public.orders');
			INSERT INTO troupe.mapped_failures (table_name, id, event_id, topic, order_key, status, attempts, max_attempts, next_try, last_error, row)
			SELECT 'public.orders', gen_random_uuid(), '', 't', convert_to('k' || n, 'UTF8'), 'retrying', 1, 9, now(), 'e',
			       to_jsonb((SELECT string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 30000) WHERE n > 0)) FROM generate_series(1, 12) AS n`)
		require.NoError(t, err)
		found, err := pool.Query(t.Context(), claimMappedFailures, pg.Args{"table": "public.orders", "rows": 1000, "after": 0, "bytes": claimBytes})
		require.NoError(t, err)
		n := 0
		for found.Next() {
			n++
		}
		require.NoError(t, found.Err())
		require.Positive(t, n)
		require.LessOrEqual(t, n, most)
	})
}
