package participant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/participant"
)

// newGap starts a participant whose handler of Paid hangs at the first event, with Fail, until its membership ends. It sends that event,
// and one of another key, which has its effect. So a rebuild that begins then handles the first event for the first time.
func (s *projection) newGap(change ...func(*participant.Config)) (first envelope.Message, observed *atomic.Int32) {
	s.t.Helper()
	p := s.new(append([]func(*participant.Config){onePartition, func(c *participant.Config) { c.Drain = 100 * time.Millisecond }}, change...)...)
	var hung atomic.Bool
	observed = &atomic.Int32{}
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if e.Body.Fail != "" && hung.CompareAndSwap(false, true) {
			<-ctx.Done()
			return ctx.Err()
		}
		if s.broken.Load() && e.Body.Fail != "" {
			return errAsked
		}
		return project(ctx, tx, p, string(e.Message.Key), e.Body.N)
	})
	p.Extension().Observe(s.bank.Events(), "Paid", func(context.Context, pgx.Tx, envelope.Message) error {
		observed.Add(1)
		return nil
	})
	participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
	s.start(p)
	first = s.event("k-0", Paid{N: 0, Fail: "once"})
	s.send(first)
	s.send(s.event("k-1", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.clear()
	return first, observed
}

// TestObserversSeeAMessageThatARebuildHandlesFirst checks that joins and expectations get an event that was not handled when a rebuild
// began, and no event once more.
func TestObserversSeeAMessageThatARebuildHandlesFirst(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	_, observed := s.newGap()
	observed.Store(0) // both were observed, and one of these runs was rolled back
	s.waitFinished(s.rebuild(1, false))
	require.Equal(t, map[string][]int{"k-0": {0}, "k-1": {0}}, s.lines())
	require.EqualValues(t, 1, observed.Load())
}

// TestADeadLetterOfAMessageThatARebuildHandlesFirst checks that it is one of the message and not of the rebuild: its copy is sent, and its
// redrive writes to the outbox and the deadlines.
func TestADeadLetterOfAMessageThatARebuildHandlesFirst(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	first, _ := s.newGap(onlyOnce)
	s.broken.Store(true)
	s.waitFinished(s.rebuild(1, false))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 0"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"), "the copy and the event of the dead letter")
	s.clear()
	s.broken.Store(false)
	s.send(s.redriven(first, 1))
	s.waitCount(1, "SELECT count(*) FROM done")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE key = 'k-0'"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines"))
}

// TestARebuildWaitsForARedriveThatIsUnderWay redrives a dead letter, and starts a rebuild before the redriven message has come. The
// message never had its effect: the rebuild must not handle it first, without its writes, and have the redriven one passed over.
func TestARebuildWaitsForARedriveThatIsUnderWay(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition, onlyOnce))
	s.broken.Store(true)
	first := s.event("k-0", Paid{N: 0, Fail: "error"})
	s.send(first)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	stop()
	s.broken.Store(false)
	s.clear()
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.repairs (actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id)
		SELECT 'test', 'redrive', '', id, consumer_group, topic, partition, "offset", message_id FROM troupe.dead_letters;
		UPDATE troupe.dead_letters SET status = 'redriven'`)
	require.NoError(t, err)
	id := s.rebuild(1, false)
	s.start(s.participant(onePartition, onlyOnce)) // takes the lease, with which a rebuild begins
	s.send(s.event("k-1", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'k-1'")
	s.send(s.redriven(first, 1))
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": {0, 0}, "k-1": {0, 0}}, s.lines(), "the redriven message, and then the rebuild")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE key = 'k-0'"))
}

// TestAnOperatorGivesUpAHeldMessageOfARebuild checks that it becomes a dead letter of the rebuild, with neither copy nor event, and that one
// that the rebuild handles first becomes a dead letter as ever.
func TestAnOperatorGivesUpAHeldMessageOfARebuild(t *testing.T) {
	t.Parallel()
	for name, isNew := range map[string]bool{"handled before": false, "handled first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 1)
			redrives, written := 65536, 0
			if isNew {
				s.newGap(holdLong)
				redrives, written = 0, 2
			} else {
				s.start(s.participant(onePartition, holdLong))
				s.send(s.event("k-0", Paid{N: 0, Fail: "later"}), s.event("k-1", Paid{N: 0}))
				s.waitCount(2, "SELECT count(*) FROM done")
				s.clear()
			}
			s.broken.Store(true)
			id := s.rebuild(1, false)
			s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
			_, err := s.desk().Release(t.Context(), s.heldPlace(), repair.ReleaseConfig{By: ann})
			require.NoError(t, err)
			s.waitFinished(id)
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = $1", redrives))
			require.Equal(t, written, s.count("SELECT count(*) FROM troupe.outbox"))
		})
	}
}
