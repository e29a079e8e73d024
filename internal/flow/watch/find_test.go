package watch_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/flow/watch"
)

// keys returns the keys of the flows that a filter selects, read page by page.
func (s *stage) keys(f watch.Filter, limit int) (keys []string) {
	s.t.Helper()
	after := ""
	for {
		flows, next, err := s.desk().Find(s.t.Context(), f, limit, after)
		require.NoError(s.t, err)
		require.LessOrEqual(s.t, len(flows), limit)
		for _, one := range flows {
			keys = append(keys, one.Key)
		}
		if after = next; after == "" {
			return keys
		}
	}
}

// TestFlowsAreFoundByHowTheyStand checks that for each filter all pages together contain every flow once and in order.
func TestFlowsAreFoundByHowTheyStand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	all := [][]said{order("done-1"), order("done-2"), order("missing"), order("late"), order("refused"), order("odd")}
	all[2] = all[2][:1]
	all[3][2].ago -= 10 * time.Second
	all[3][3].ago -= 10 * time.Second
	all[4] = append(all[4][:1], said{hop: "payment", typ: "Declined", key: "refused", id: "refused-2", cause: "refused-1", outcome: "failure", ago: time.Hour},
		said{hop: "inventory", typ: "Reserved", key: "refused", id: "refused-3", cause: "refused-1", outcome: "success", ago: time.Hour})
	all[5] = append(all[5], said{hop: "shipping", typ: "Lost", key: "odd", id: "odd-5", cause: "odd-4", ago: time.Hour},
		said{hop: "order", typ: "Placed", key: "odd", id: "odd-6", ago: 40 * time.Minute}) // begun twice, and still one flow
	sent := time.Now()
	for i := range all {
		for j := range all[i] {
			all[i][j].ago -= time.Duration(i) * time.Minute
		}
		s.send(all[i]...)
	}
	s.watch()
	s.judged()
	for _, c := range []struct {
		name   string
		filter watch.Filter
		want   []string
	}{
		{"all", watch.Filter{}, []string{"odd", "refused", "late", "missing", "done-2", "done-1"}},
		{"ended", watch.Filter{Statuses: []watch.Status{watch.Completed, watch.Compensated}}, []string{"refused", "late", "done-2", "done-1"}},
		{"compensated", watch.Filter{Statuses: []watch.Status{watch.Compensated}}, []string{"refused"}},
		{"deviant", watch.Filter{Statuses: []watch.Status{watch.Deviant}}, []string{"odd", "missing"}},
		{"parked", watch.Filter{Statuses: []watch.Status{watch.Parked}}, nil},
		{"missing", watch.Filter{Found: watch.Missing}, []string{"odd", "missing"}},
		{"late", watch.Filter{Found: watch.Late}, []string{"late"}},
		{"stuck", watch.Filter{Found: watch.Stuck}, nil},
		{"unexpected", watch.Filter{Found: watch.Unexpected}, []string{"odd"}},
		{"unexpected of a key", watch.Filter{Found: watch.Unexpected, Key: "late"}, nil},
		{"missing of a key", watch.Filter{Found: watch.Missing, Key: "missing"}, []string{"missing"}},
		{"of a key", watch.Filter{Key: "done-2"}, []string{"done-2"}},
		{"of a key and a state", watch.Filter{Key: "done-2", Statuses: []watch.Status{watch.Deviant}}, nil},
		{"of an age", watch.Filter{BeganAfter: sent.Add(-58*time.Minute - 30*time.Second), BeganBefore: sent.Add(-56*time.Minute - 30*time.Second)}, []string{"late", "missing"}},
	} {
		for _, limit := range []int{1, 2, 50} {
			require.Equal(t, c.want, s.keys(c.filter, limit), "%s, %d at a time", c.name, limit)
		}
	}
	for name, bad := range map[string]watch.Filter{"want one of under way": {Statuses: []watch.Status{"dancing"}}, "want one of missing": {Found: "lost"}} {
		_, _, err := s.desk().Find(t.Context(), bad, 1, "")
		require.ErrorContains(t, err, name)
	}
	_, _, err := s.desk().Find(t.Context(), watch.Filter{}, 0, "")
	require.ErrorContains(t, err, "want 1 to 1000")
	_, _, err = s.desk().Find(t.Context(), watch.Filter{}, 1, "yesterday")
	require.ErrorAs(t, err, new(admin.FieldError))
	require.True(t, s.desk().Declares(s.flow+".shipping.events", "Shipped"))
	require.False(t, s.desk().Declares(s.flow+".shipping.events", "Lost"))
	require.True(t, s.desk().Declares(s.flow+".shipping.dlq", "Lost"), "of dead letters nothing is declared")
	names, err := watch.Names(t.Context(), s.pool)
	require.NoError(t, err)
	require.Equal(t, []string{s.flow}, names)
}

// TestAFlowWhoseFirstMessageIsNotStoredIsListed: that message is older than the retention, or its topic is not watched.
func TestAFlowWhoseFirstMessageIsNotStoredIsListed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	rest := order("rest")[1:]
	for i := range rest {
		rest[i].ago -= time.Minute
	}
	s.send(order("whole")...)
	s.send(rest...)
	s.watch()
	s.judged()
	for _, limit := range []int{1, 50} {
		require.Equal(t, []string{"rest", "whole"}, s.keys(watch.Filter{}, limit))
	}
}

// TestALongFlowWhoseFirstMessageIsNotStoredIsFoundByFewReads: the page must not read all messages of such a flow for each of them.
func TestALongFlowWhoseFirstMessageIsNotStoredIsFoundByFewReads(t *testing.T) {
	t.Parallel()
	for name, flow := range map[string]struct{ messages, uncaused int }{
		"all are caused": {messages: 6000},
		"as many without a cause follow the rest": {messages: 12_000, uncaused: 6000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			_, err := s.pool.Exec(t.Context(), `
INSERT INTO troupe.watch_messages (slot, flow, topic, partition, "offset", at, written_at, type, outcome, id, correlation, causation, key)
SELECT i % 3, 1, 1, 0, i, now() - make_interval(secs => i), now(), 1, 1, gen_random_uuid(), md5(CASE WHEN i > $1 THEN (i / 5)::text ELSE 'long' END)::uuid,
       CASE WHEN i > $2 AND (i <= $1 OR i % 5 < 4) THEN gen_random_uuid() END, 'o-' || i / 5
FROM generate_series(1, 30000) AS i`, flow.messages, flow.uncaused)
			require.NoError(t, err)
			_, err = s.pool.Exec(t.Context(), "ANALYZE troupe.watch_messages")
			require.NoError(t, err)
			var plans []struct {
				Plan struct {
					Rows int `json:"Actual Rows"`
					Hits int `json:"Shared Hit Blocks"`
					Read int `json:"Shared Read Blocks"`
				}
			}
			err = s.pool.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+watch.FindNewest, pgx.QueryExecModeExec, pgx.NamedArgs{
				"flow": int32(1), "at": time.Now(), "id": "ffffffff-ffff-ffff-ffff-ffffffffffff", "most": 51, "after": time.Unix(0, 0), "before": time.Now(),
			}).Scan(&plans)
			require.NoError(t, err)
			require.Equal(t, 51, plans[0].Plan.Rows)
			require.Less(t, plans[0].Plan.Hits+plans[0].Plan.Read, 20*flow.messages, "blocks")
		})
	}
}

// TestPagesOfFlowsReadIndexes checks that each page of many is read from the index of times, and the pages of a key from the
// index of keys.
func TestPagesOfFlowsReadIndexes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.pool.Exec(t.Context(), `
INSERT INTO troupe.watch_messages (slot, flow, topic, partition, "offset", at, written_at, type, outcome, id, correlation, causation, key)
SELECT i % 3, 1, 1, 0, i, now() - make_interval(secs => i), now(), 1, 1, gen_random_uuid(), md5((i / 5)::text)::uuid,
       CASE WHEN i % 5 < 4 THEN gen_random_uuid() END, 'o-' || i / 5
FROM generate_series(1, 50000) AS i`)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), "ANALYZE troupe.watch_messages")
	require.NoError(t, err)
	for sql, index := range map[string]string{watch.FindNewest: `watch_messages_\d+_at_idx`, watch.FindByKey: `watch_messages_\d+_key_idx`} {
		rows, err := s.pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+sql, pgx.QueryExecModeExec, pgx.NamedArgs{
			"flow": int32(1), "at": time.Now().Add(-time.Hour), "id": "ffffffff-ffff-ffff-ffff-ffffffffffff", "most": 51, "key": "o-777",
			"after": time.Unix(0, 0), "before": time.Now(),
		})
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		for _, slot := range []int{0, 1, 2} {
			require.NotContains(t, plan, fmt.Sprintf("Seq Scan on watch_messages_%d ", slot), plan)
		}
		require.Regexp(t, regexp.MustCompile(index), plan)
	}
}
