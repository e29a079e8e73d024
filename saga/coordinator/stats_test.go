package coordinator_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// TestConflictsAreTold: a start waits for one that is under way. One is a caller's; the other is the participant's own,
// which runs again by itself.
func TestConflictsAreTold(t *testing.T) {
	t.Parallel()
	d, err := saga.Define(saga.Spec{
		Saga: "stay", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String},
		Start: []saga.Start{{Hop: "payment", Event: "Booked", Set: saga.Mapping{"id": "event.id"}}},
		Steps: []saga.Step{{Name: "leave", Success: []saga.Answer{{Hop: "payment", Event: "Left"}}}},
	})
	require.NoError(t, err)
	f := newHops(t, true)
	p := f.participant("order", f.pool)
	var conflicts, ignored atomic.Int64
	c, err := coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{d}, Log: testkit.Logger(t),
		Conflict: func(err error) {
			require.ErrorIs(t, err, coordinator.ErrConflict)
			conflicts.Add(1)
		},
		Decided: func(d coordinator.Decided) {
			if d.Effects.Ignored != "" {
				ignored.Add(1)
			}
		},
	})
	require.NoError(t, err)
	f.run(p, f.pool)
	start := func(tx pgx.Tx) error {
		_, err := c.Start(t.Context(), tx, "stay", map[string]any{"id": "s-1"})
		return err
	}
	first, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	defer first.Rollback(context.Background())
	require.NoError(t, start(first))
	second := make(chan error, 1)
	go func() { second <- pgx.BeginFunc(t.Context(), f.pool, start) }()
	_, err = f.pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 's-1', 'Booked', $2)",
		f.name+".payment.events", `{"id": "s-1"}`)
	require.NoError(t, err)
	testkit.Wait(t, "both to wait for the first", func() (bool, error) {
		var n int
		err := f.pool.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory' AND query LIKE '%AS hashes%'`).Scan(&n)
		return n == 2, err
	})
	require.NoError(t, first.Commit(t.Context()))
	require.ErrorIs(t, <-second, coordinator.ErrConflict)
	testkit.Wait(t, "the event to be decided on after all", func() (bool, error) { return ignored.Load() == 1, nil })
	require.EqualValues(t, 2, conflicts.Load())
}

// TestStatsSayWhatStandsOpen counts by type and status, also where the count is 0.
func TestStatsSayWhatStandsOpen(t *testing.T) {
	t.Parallel()
	f := newHops(t, true)
	var stashed atomic.Int64
	p := f.participant("order", f.pool)
	c, err := coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{order(t), guests(t)}, Log: testkit.Logger(t),
		Stashed: func(s coordinator.Stashed) {
			require.Equal(t, []string{"visit", "guest", "ada"}, []string{s.Saga, s.Variable, s.Value})
			stashed.Add(1)
		},
	})
	require.NoError(t, err)
	f.c = c
	f.run(p, f.pool)
	require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		for _, id := range []string{"v-1", "v-2", "v-3"} {
			if _, err := c.Start(t.Context(), tx, "visit", map[string]any{"id": id, "guest": "bob"}); err != nil {
				return err
			}
		}
		return nil
	}))
	f.await(f.start("o-1"), saga.Completed)
	_, err = f.pool.Exec(t.Context(), "UPDATE troupe.sagas SET started_at = started_at - interval '1 hour' WHERE id = 'visit/v-2'")
	require.NoError(t, err)
	_, err = f.pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'ada', 'Arrived', $2)",
		f.name+".payment.events", `{"name": "ada"}`)
	require.NoError(t, err)
	testkit.Wait(t, "ada's arrival", func() (bool, error) { return stashed.Load() == 1, nil })
	_, err = f.pool.Exec(t.Context(), `INSERT INTO troupe.sagas SELECT 'visit/x', saga, 'x', 'f.other', consumer_group, definition, version, status, steps,
		reason, state, wake_at, started_at, updated_at, ended_at, content_type FROM troupe.sagas WHERE id = 'visit/v-1'`)
	require.NoError(t, err)

	_, err = f.pool.Exec(t.Context(), `INSERT INTO troupe.saga_stash (saga, variable, value, saga_id, message_id, event)
		SELECT 'visit', 'guest', 'bob', 'visit/v-1', 'm-' || n, '{}' FROM generate_series(1, 2) AS n`)
	require.NoError(t, err)

	s, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{"order": 0, "visit": 1}, s.Stashed)
	require.Equal(t, map[string]int{"order": 0, "visit": 2}, s.Kept)
	require.Equal(t, f.name+".order", s.Hop)
	counts := make(map[string]int)
	for _, o := range s.Open {
		counts[o.Saga+" "+string(o.Status)] = o.Count
		switch {
		case o.Count == 0:
			require.Zero(t, o.Oldest)
		case o.Status == saga.Waiting:
			require.Greater(t, o.Oldest, time.Hour)
		default:
			require.Less(t, o.Oldest, time.Hour)
		}
	}
	require.Equal(t, map[string]int{
		"order waiting": 0, "order running": 0, "order compensating": 0, "order parked": 0,
		"visit waiting": 2, "visit running": 1, "visit compensating": 0, "visit parked": 0,
	}, counts)
}
