package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestARebuildWaitsForTheHandlerWhereItsEventsAreOnlyObserved starts a member without the handler, as during a rollout, that
// has a join or an expectation of the same events. The events of the rebuild wait for a member with the handler. So does an event that failed
// in the rebuild and was redriven.
func TestARebuildWaitsForTheHandlerWhereItsEventsAreOnlyObserved(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	observes := func() (stop func()) {
		p := s.new(onePartition, holdLong)
		p.Extension().Observe(s.bank.Events(), "Paid", func(context.Context, pgx.Tx, envelope.Message) error { return nil })
		return s.start(p)
	}
	waits := func(events, redrive int) {
		t.Helper()
		ended := func() int { return s.count("SELECT count(*) FROM troupe.inbox_recent WHERE redrive = $1", redrive) }
		testkit.Wait(t, "the events to wait for a member with the handler, or to end", func() (bool, error) {
			return s.count("SELECT count(*) FROM troupe.held") == events || ended() > 0, nil
		})
		require.Zero(t, ended())
	}
	serve := func() (stop func()) {
		_, err := s.pool.Exec(t.Context(), "UPDATE troupe.held SET next_try = clock_timestamp() WHERE next_try IS NOT NULL")
		require.NoError(t, err)
		return s.start(s.participant(onePartition, onlyOnce))
	}
	stop := serve()
	first := s.event("k-0", Paid{N: 0, Fail: "error"})
	s.send(first, s.event("k-1", Paid{N: 0}), s.event("k-1", Paid{N: 1}))
	s.waitCount(3, "SELECT count(*) FROM done")
	stop()
	s.clear()

	id := s.rebuild(1, false)
	stop = observes()
	waits(3, 65536)
	stop()
	s.broken.Store(true)
	stop = serve()
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-1": upTo(2)}, s.lines())
	s.broken.Store(false)
	stop()

	stop = observes()
	s.send(s.redriven(first, 65537))
	waits(1, 65537)
	stop()
	serve()
	s.waitCount(3, "SELECT count(*) FROM done")
	require.Equal(t, map[string][]int{"k-0": {0}, "k-1": upTo(2)}, s.lines())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestACancelledRebuildOfAGroupThatBeganAtTheEndOfItsTopic cancels a rebuild of events that the group had skipped, since its offset was set by
// hand. No event has come since, and Kafka has the offset that the rebuild had reached. The next members still skip them.
func TestACancelledRebuildOfAGroupThatBeganAtTheEndOfItsTopic(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	serve := func() (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Drain = 1, 100*time.Millisecond })
		participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
			if s.hangs.Load() && e.Body.N > 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return project(ctx, tx, p, string(e.Message.Key), e.Body.N)
		})
		participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
		return s.start(p)
	}
	s.send(s.events(0, 1, 3)...)
	end := make(kadm.Offsets)
	end.AddOffset(s.bank.Events(), 0, 3, -1)
	s.commit(s.hop.String(), end)
	s.hangs.Store(true)
	stop := serve()
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 2", s.bank.Events())
	id := s.rebuild(1, false)
	s.waitCount(1, "SELECT count(*) FROM done")
	testkit.Wait(t, "the offset that the rebuild has reached", func() (bool, error) { return s.committedOf(s.bank.Events(), 0) == 1, nil })
	s.cancel(id)
	s.waitUndone(id)
	stop()

	s.hangs.Store(false)
	serve()
	s.send(s.event("k-0", Paid{N: 3}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 3")
	require.Equal(t, map[string][]int{"k-0": {0, 3}}, s.lines())
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"))
}
