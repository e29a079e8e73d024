package coordinator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// verdict is the number of sagas by status at the end.
type verdict map[saga.Status]int

func (v verdict) String() string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(v)) {
		all = append(all, fmt.Sprintf("%d %s", v[status], status))
	}
	return strings.Join(all, ", ")
}

// judge compares the rows that are left with the sagas that were started, when nothing is under way any more.
func (s *crew) judge(keys []string) verdict {
	s.t.Helper()
	v := make(verdict)
	states, did := s.states(), s.did()
	require.Len(s.t, states, len(keys), "one saga for each start")
	emitted := s.emitted(len(keys))
	for _, key := range keys {
		st, ok := states[key]
		require.True(s.t, ok, "saga %s is gone", key)
		v[st.Status]++
		s.judgeEffects(st, did[key])
		s.judgeEnd(st, emitted[key])
	}
	s.judgeLogs()
	s.judgeRest()
	return v
}

// judgeLogs checks that each log has no gap and folds to the state in its saga's row.
func (s *crew) judgeLogs() {
	s.t.Helper()
	states, logs := s.states(), s.logs()
	require.Len(s.t, logs, len(states))
	for key, st := range states {
		require.Equal(s.t, st, fold(s.t, s.d, logs[st.ID()]), "the log of %s gives another state", key)
	}
}

// judgeEffects checks the effects of hops for a saga, with each operation counted: money and stock are where they belong.
func (s *crew) judgeEffects(st saga.State, did map[string]int) {
	s.t.Helper()
	for what, n := range did {
		require.Equal(s.t, 1, n, "%s of %s took effect %d times", what, st.Key, n)
	}
	charged, refunded := did["payment/forward"], did["payment/compensate"]
	reserved, released := did["inventory/forward"], did["inventory/compensate"]
	shipped := did["shipping/forward"]
	switch st.Status {
	case saga.Completed:
		are := []int{charged, refunded, reserved, released, shipped}
		require.Equal(s.t, []int{1, 0, 1, 0, 1}, are, "%s is completed: %v", st.Key, did)
	case saga.Compensated:
		are := []int{charged - refunded, reserved - released, shipped}
		require.Equal(s.t, []int{0, 0, 0}, are, "%s is compensated: %v", st.Key, did)
	default:
		require.Equal(s.t, saga.Parked, st.Status, "%s: %v, %s", st.Key, st.Steps, st.Reason)
		require.LessOrEqual(s.t, refunded, charged, st.Key)
		require.LessOrEqual(s.t, released, reserved, st.Key)
	}
}

// judgeEnd checks that an ended saga has emitted its end once and has no step open or in doubt, and that another has not
// emitted one.
func (s *crew) judgeEnd(st saga.State, ids map[string]string) {
	s.t.Helper()
	want := map[saga.Status]string{saga.Completed: "OrderCompleted", saga.Compensated: "OrderCancelled"}[st.Status]
	if want == "" {
		require.Empty(s.t, ids, st.Key)
		return
	}
	require.Equal(s.t, []string{want}, slices.Collect(maps.Values(ids)), "the ends that %s emitted", st.Key)
	require.Empty(s.t, st.Deadlines)
	for _, step := range st.Steps {
		settled := []saga.Phase{saga.Skipped, saga.Done, saga.Refused, saga.Undone}
		require.Contains(s.t, append(settled, saga.StepWaiting), step.Phase, "step %s of %s", step.Name, st.Key)
	}
}

// judgeRest checks that ended sagas have left no row that finds, wakes or blocks a saga.
func (s *crew) judgeRest() {
	s.t.Helper()
	const open = "(SELECT id FROM troupe.sagas WHERE ended_at IS NULL)"
	require.Zero(s.t, s.count("order", "SELECT count(*) FROM troupe.deadlines WHERE scope NOT IN "+open), "deadlines")
	require.Zero(s.t, s.count("order", "SELECT count(*) FROM troupe.saga_associations WHERE saga_id NOT IN "+open), "associations")
	require.Zero(s.t, s.count("order", "SELECT count(*) FROM troupe.saga_locks WHERE saga_id NOT IN "+open), "locks")
	// An event that comes by a reference after its saga was compensated finds no saga, and waits until it expires.
	require.Zero(s.t, s.count("order", `
		SELECT count(*) FROM troupe.saga_stash AS h
		WHERE NOT EXISTS (
			SELECT FROM troupe.sagas AS s
			WHERE s.status = 'compensated' AND s.state -> 'data' ->> h.variable = h.value)`), "stash")
	require.Zero(s.t, s.count("order", "SELECT count(*) FROM troupe.dead_letters"), "answers that the coordinator could not take")
}

func (s *crew) states() map[string]saga.State {
	s.t.Helper()
	rows, err := s.pools["order"].Query(s.t.Context(), "SELECT key, version, state FROM troupe.sagas")
	require.NoError(s.t, err)
	all := make(map[string]saga.State)
	var key string
	var version int
	var text []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &version, &text}, func() error {
		st, err := s.d.ReadState(text)
		if err == nil && st.Version != version {
			err = fmt.Errorf("%s: version %d in the row, %d in the state", key, version, st.Version)
		}
		all[key] = st
		return err
	})
	require.NoError(s.t, err)
	return all
}

func (s *crew) logs() map[string][]decisions.Entry {
	s.t.Helper()
	const log = "SELECT saga_id, version, at, event FROM troupe.saga_events ORDER BY saga_id, version"
	rows, err := s.pools["order"].Query(s.t.Context(), log)
	require.NoError(s.t, err)
	all := make(map[string][]decisions.Entry)
	var id string
	var e decisions.Entry
	var text []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &e.Version, &e.At, &text}, func() (err error) {
		e.Event, err = saga.ReadEvent(text)
		all[id] = append(all[id], e)
		return err
	})
	require.NoError(s.t, err)
	return all
}

// did returns, by key, how often each hop/operation took effect.
func (s *crew) did() map[string]map[string]int {
	s.t.Helper()
	all := make(map[string]map[string]int)
	for _, hop := range hops[1:] {
		rows, err := s.pools[hop].Query(s.t.Context(), "SELECT key, hop || '/' || operation, count(*) FROM effects GROUP BY 1, 2")
		require.NoError(s.t, err)
		var key, what string
		var n int
		_, err = pgx.ForEachRow(rows, []any{&key, &what, &n}, func() error {
			if all[key] == nil {
				all[key] = make(map[string]int)
			}
			all[key][what] = n
			return nil
		})
		require.NoError(s.t, err)
	}
	return all
}

// emitted returns the end events on the topic, by key and by id, since a relay that is killed sends a row again.
func (s *crew) emitted(atMost int) map[string]map[string]string {
	s.t.Helper()
	var ended int
	var all map[string]map[string]string
	testkit.Wait(s.t, "the ends on the topic", func() (bool, error) {
		all = make(map[string]map[string]string)
		ended = s.count("order", "SELECT count(*) FROM troupe.sagas WHERE ended_at IS NOT NULL")
		for _, r := range s.ends.Records() {
			m, err := kafka.Message(r)
			if err != nil {
				return false, err
			}
			if m.Outcome == envelope.Exhausted {
				return false, fmt.Errorf("the coordinator gave up %s", m.CausationID)
			}
			key := string(m.Key)
			if all[key] == nil {
				all[key] = make(map[string]string)
			}
			all[key][m.ID] = m.Type
		}
		if len(all) < ended {
			return false, fmt.Errorf("%d of %d", len(all), ended)
		}
		return true, nil
	})
	require.LessOrEqual(s.t, len(all), atMost)
	return all
}
