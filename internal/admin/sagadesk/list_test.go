package sagadesk_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// many fills a database with n sagas of three types, one started each second until now. Of 1,000 of a type 980 are completed,
// 10 compensated, 8 running, one compensating and one parked; the open ones are spread over the whole time.
func many(t testing.TB, n int) (*pgxpool.Pool, *sagadesk.Desk) {
	t.Helper()
	pool := testkit.Database(t)
	d := order(t)
	s, _ := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: anOrder}, noon)
	state, err := json.Marshal(s)
	require.NoError(t, err)
	run := func(sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	run("INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, 'order', 1, $2), ('r', 'refund', 1, ''), ('i', 'invoice', 1, '')",
		d.Hash(), string(d.JSON()))
	run(`
INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, reason, state, started_at, updated_at, ended_at)
SELECT saga || '/o-' || i, saga, 'o-' || i, 'order.order', 'order.order', $1, 4, status,
       CASE WHEN status IN ('running', 'compensating', 'parked') THEN (ARRAY['payment', 'inventory', 'inventory shipping'])[1 + i % 3] ELSE '' END,
       CASE status WHEN 'parked' THEN 'shipping: no carrier' END, $2::jsonb, at, at + interval '1 minute',
       CASE WHEN status IN ('completed', 'compensated') THEN at + interval '1 minute' END
FROM generate_series(1, $3::integer) AS i
CROSS JOIN LATERAL (
  SELECT (ARRAY['order', 'refund', 'invoice'])[1 + i % 3] AS saga, now() - make_interval(secs => $3::integer - i) AS at,
         CASE i / 3 % 1000 WHEN 0 THEN 'parked' WHEN 1 THEN 'compensating' ELSE
           CASE WHEN i / 3 % 1000 < 10 THEN 'running' WHEN i / 3 % 1000 < 20 THEN 'compensated' ELSE 'completed' END END AS status) AS s`,
		d.Hash(), string(state), n)
	run("INSERT INTO troupe.saga_associations (saga, variable, value, saga_id) SELECT saga, 'payment_id', 'p-' || key, id FROM troupe.sagas WHERE ended_at IS NULL")
	run("VACUUM ANALYZE troupe.sagas, troupe.saga_associations, troupe.saga_definitions")
	desk, err := sagadesk.New(sagadesk.Config{Pool: pool})
	require.NoError(t, err)
	return pool, desk
}

// questions are typical filters and pages.
var questions = []struct {
	name   string
	filter sagadesk.Filter
	page   sagadesk.Page
	index  string
	arms   int // pages that are merged, each read in order from an index; 0: one page, which needs no sort
}{
	{"all", sagadesk.Filter{}, sagadesk.Page{}, "sagas_by_status", 7},
	{"all, oldest first", sagadesk.Filter{}, sagadesk.Page{Oldest: true}, "sagas_by_status", 7},
	{"parked", sagadesk.Filter{Statuses: []saga.Status{saga.Parked}}, sagadesk.Page{Oldest: true}, "sagas_by_status", 0},
	{"parked or going back", sagadesk.Filter{Statuses: []saga.Status{saga.Parked, saga.Compensating}}, sagadesk.Page{}, "sagas_by_status", 2},
	{"completed", sagadesk.Filter{Statuses: []saga.Status{saga.Completed}}, sagadesk.Page{}, "sagas_by_status", 0}, // nearly all
	{"of a type", sagadesk.Filter{Saga: "refund"}, sagadesk.Page{}, "sagas_by_saga", 7},
	{"of a type, parked", sagadesk.Filter{Saga: "refund", Statuses: []saga.Status{saga.Parked}}, sagadesk.Page{}, "sagas_by_saga", 0},
	{"by key", sagadesk.Filter{Key: "o-777"}, sagadesk.Page{}, "sagas_pkey", 0},
	{"by a variable", sagadesk.Filter{Variable: "payment_id", Value: "p-o-3"}, sagadesk.Page{}, "saga_associations_pkey", 0},
	{"on a definition", sagadesk.Filter{Definition: "none"}, sagadesk.Page{}, "sagas_by_status", 4},
	{"at a step", sagadesk.Filter{Step: "shipping"}, sagadesk.Page{}, "sagas_by_status", 4},
	{"not moved for an hour", sagadesk.Filter{NotMovedSince: time.Now().Add(-time.Hour)}, sagadesk.Page{}, "sagas_by_status", 4},
	{"started in an hour", sagadesk.Filter{StartedAfter: time.Now().Add(-2 * time.Hour), StartedBefore: time.Now().Add(-time.Hour)},
		sagadesk.Page{}, "sagas_by_status", 7},
}

// Each question is answered from an index that has the answer in order, wherever the page is.
func TestListsReadIndexesInOrder(t *testing.T) {
	t.Parallel()
	const n = 60_000
	pool, desk := many(t, n)
	middle := time.Now().Add(-n/2*time.Second).UTC().Format(time.RFC3339Nano) + ",order/o-1"
	for _, q := range questions {
		for _, after := range []string{"", middle} {
			q.page.After = after
			sql, args, err := sagadesk.Listing(q.filter, q.page)
			require.NoError(t, err)
			rows, err := pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+sql, pgx.QueryExecModeExec, args)
			require.NoError(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			require.Regexp(t, q.index, plan, "%s\n%s", q.name, plan)
			require.NotContains(t, plan, "Seq Scan on sagas", "%s\n%s", q.name, plan)
			sorts := regexp.MustCompile(`(?m)^\s*(->\s+)?(Incremental )?Sort$`).FindAllString(plan, -1)
			switch {
			case q.arms > 0:
				require.Len(t, regexp.MustCompile("(?m)Limit$").FindAllString(plan, -1), q.arms+1, "%s\n%s", q.name, plan)
				require.LessOrEqual(t, len(sorts), 1, "%s\n%s", q.name, plan)
			case q.filter.Key+q.filter.Value == "": // a key has at most one saga of each type
				require.Empty(t, sorts, "%s\n%s", q.name, plan)
			}
			_, _, err = desk.List(t.Context(), q.filter, q.page)
			require.NoError(t, err, q.name)
		}
	}
}

// All pages together contain each saga once and in order, whatever the filter.
func TestPagesAreTheWholeInOrder(t *testing.T) {
	t.Parallel()
	pool, desk := many(t, 5_000)
	for _, c := range []struct {
		where  string
		filter sagadesk.Filter
	}{
		{"true", sagadesk.Filter{}},
		{"status = 'parked'", sagadesk.Filter{Statuses: []saga.Status{saga.Parked}}},
		{"saga = 'order' AND status IN ('running', 'compensated')", sagadesk.Filter{Saga: "order", Statuses: []saga.Status{saga.Running, saga.Compensated}}},
		{"saga = 'invoice'", sagadesk.Filter{Saga: "invoice"}},
		{"key = 'o-77'", sagadesk.Filter{Key: "o-77"}},
		{"key = 'o-77' AND status = 'parked'", sagadesk.Filter{Key: "o-77", Statuses: []saga.Status{saga.Parked}}},
		{"steps LIKE '%shipping%'", sagadesk.Filter{Step: "shipping"}},
		{"false", sagadesk.Filter{Step: "ship"}},
		{"key = 'o-3'", sagadesk.Filter{Variable: "payment_id", Value: "p-o-3"}},
		{"false", sagadesk.Filter{Variable: "payment_id", Value: "p-o-300"}}, // it has ended
		{"definition <> '' AND status IN ('waiting', 'running', 'compensating', 'parked')", sagadesk.Filter{Definition: order(t).Hash()}},
		{"status = 'completed'", sagadesk.Filter{Definition: order(t).Hash(), Statuses: []saga.Status{saga.Completed}}},
		{"false", sagadesk.Filter{Definition: "none"}},
	} {
		for _, oldest := range []bool{false, true} {
			var want, got []string
			order := map[bool]string{false: "DESC", true: "ASC"}[oldest]
			rows, err := pool.Query(t.Context(), fmt.Sprintf("SELECT id FROM troupe.sagas WHERE %s ORDER BY started_at %s, id %s", c.where, order, order))
			require.NoError(t, err)
			want, err = pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			for p := (sagadesk.Page{Limit: 700, Oldest: oldest}); ; {
				list, next, err := desk.List(t.Context(), c.filter, p)
				require.NoError(t, err)
				for _, r := range list {
					got = append(got, r.ID)
				}
				if p.After = next; next == "" {
					break
				}
			}
			require.Equal(t, len(want), len(got), c.where)
			if len(want) > 0 {
				require.Equal(t, want, got, c.where)
			}
		}
	}
	counts, err := desk.Counts(t.Context())
	require.NoError(t, err)
	require.Contains(t, counts, sagadesk.Count{Saga: "order", Status: saga.Parked, Count: 1})
	uses, err := desk.Definitions(t.Context())
	require.NoError(t, err)
	require.Len(t, uses, 3)
	var live int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.sagas WHERE ended_at IS NULL").Scan(&live))
	require.Equal(t, live, uses[1].Open) // of order
	for _, bad := range []sagadesk.Page{{Limit: -1}, {Limit: 10_001}, {After: "x"}} {
		_, _, err := desk.List(t.Context(), sagadesk.Filter{}, bad)
		require.Error(t, err)
	}
	_, _, err = desk.List(t.Context(), sagadesk.Filter{Statuses: []saga.Status{"parked' OR true --"}}, sagadesk.Page{})
	require.ErrorContains(t, err, "want one of waiting")
	_, _, err = desk.List(t.Context(), sagadesk.Filter{Value: "p-1"}, sagadesk.Page{})
	require.ErrorContains(t, err, "want both, or neither")
}

// BenchmarkList measures a page of 50 among 10,000 and among 1,000,000 sagas, and the counts:
//
//	go test -run '^$' -bench BenchmarkList -benchtime 100x -timeout 20m ./internal/admin/sagadesk
func BenchmarkList(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			_, desk := many(b, n)
			middle := time.Now().Add(-time.Duration(n)/2*time.Second).UTC().Format(time.RFC3339Nano) + ",order/o-1"
			for _, q := range questions {
				for name, after := range map[string]string{"": "", ", a page in the middle": middle} {
					b.Run(q.name+name, func(b *testing.B) {
						q.page.After = after
						for b.Loop() {
							_, _, err := desk.List(b.Context(), q.filter, q.page)
							require.NoError(b, err)
						}
					})
				}
			}
			b.Run("counts", func(b *testing.B) {
				for b.Loop() {
					_, err := desk.Counts(b.Context())
					require.NoError(b, err)
				}
			})
			b.Run("definitions in use", func(b *testing.B) {
				for b.Loop() {
					_, err := desk.Definitions(b.Context())
					require.NoError(b, err)
				}
			})
		})
	}
}
