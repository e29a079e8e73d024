package repair_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/testkit"
)

// sqlTracer keeps the first statement that reads troupe.held.
type sqlTracer struct {
	sql  string
	args []any
}

func (s *sqlTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if s.sql == "" && strings.Contains(data.SQL, "FROM troupe.held h") {
		s.sql, s.args = data.SQL, data.Args
	}
	return ctx
}

func (s *sqlTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestHeldKeysAreListedAndRetriedWithoutComparingTheirMessages reads the plans: comparing the 100,000 messages of one key with each
// other takes minutes, and so does counting the messages behind each of 100,000 keys for every 500 of them.
func TestHeldKeysAreListedAndRetriedWithoutComparingTheirMessages(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	var traced sqlTracer
	cfg := pool.Config()
	cfg.ConnConfig.Tracer = &traced
	watched, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(watched.Close)
	desk, err := repair.New(repair.Config{Pool: watched})
	require.NoError(t, err)
	for keys, key := range map[string]string{"one key": "a", "many keys": "a' || n || '"} {
		_, err := pool.Exec(t.Context(), `
			TRUNCATE troupe.held;
			INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, message_time, max_attempts, message_id,
			                         attempts, next_try, last_error, error_class, first_failed_at, last_failed_at)
			SELECT 'order.payment', '0191f6a8-0000-7000-8000-00000000000a', 0, n, 'order.payment.commands', sha256(('`+key+`')::bytea), 'a', '', now(), 5, n::text,
			       1, now() + interval '1 hour', 'no', 'transient', now(), now()
			FROM generate_series(1, 2000) AS n`)
		require.NoError(t, err)
		for action, do := range map[string]func() error{
			"list": func() error {
				_, _, err := desk.Held(t.Context(), repair.HeldFilter{Group: "order.payment"}, repair.Page{Limit: 10})
				return err
			},
			"retry": func() error {
				_, err := desk.Retry(t.Context(), repair.HeldFilter{Group: "order.payment"}, ann)
				return err
			},
		} {
			traced.sql = ""
			require.NoError(t, do())
			rows, err := pool.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS off, TIMING off) "+traced.sql, traced.args...)
			require.NoError(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			require.NotContains(t, plan, "Rows Removed by Join Filter", "%s of %s:\n%s", action, keys, plan)
			for _, line := range lines {
				if counts := regexp.MustCompile(`Aggregate .*loops=([0-9]+)`).FindStringSubmatch(line); counts != nil {
					n, err := strconv.Atoi(counts[1])
					require.NoError(t, err)
					require.LessOrEqual(t, n, 500, "%s of %s:\n%s", action, keys, plan)
				}
			}
		}
	}
}
