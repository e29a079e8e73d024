package participant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// newGap starts a participant whose handler of Paid hangs at the first event, with Fail, until its membership ends. It sends that event,
// and two of other keys, which have their effects: k-1, and Refunded of k-2. So a rebuild that begins then handles the first event for the
// first time.
func (s *projection) newGap(change ...func(*participant.Config)) (first envelope.Message, observed *atomic.Int32) {
	s.t.Helper()
	p := s.new(append([]func(*participant.Config){onePartition, func(c *participant.Config) { c.Drain = 100 * time.Millisecond }}, change...)...)
	s.hangs.Store(true)
	observed = &atomic.Int32{}
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if e.Body.Fail != "" && s.hangs.CompareAndSwap(true, false) {
			<-ctx.Done()
			return ctx.Err()
		}
		if s.broken.Load() && e.Body.Fail != "" {
			return errAsked
		}
		return project(ctx, tx, p, string(e.Message.Key), e.Body.N)
	})
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Refunded]) error {
		return project(ctx, tx, p, string(e.Message.Key), -e.Body.N)
	})
	p.Extension().Observe(s.bank.Events(), "Paid", func(context.Context, pgx.Tx, envelope.Message) error {
		observed.Add(1)
		return nil
	})
	participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
	s.start(p)
	first = s.event("k-0", Paid{N: 0, Fail: "once"})
	s.send(first)
	s.send(s.event("k-1", Paid{N: 0}), s.event("k-2", Refunded{N: 1}))
	s.waitCount(2, "SELECT count(*) FROM done")
	s.clear()
	return first, observed
}

// TestARebuildThatOutlivesTheInboxRepeatsNoWrites begins a rebuild whose member has handled events behind one that runs, and the inbox has
// forgotten them: only the first one is new.
func TestARebuildThatOutlivesTheInboxRepeatsNoWrites(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.newGap()
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.waitFinished(s.rebuild(1, false))
	require.Equal(t, map[string][]int{"k-0": {0}, "k-1": {0}}, s.lines())
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE key = 'k-0'"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines"))
}

// TestACancelledRebuildThatOutlivedTheInboxRepeatsNothing cancels such a rebuild while the first event, which is new, and one that had been
// handled are held: the second one is dropped, and the first one has its effect.
func TestACancelledRebuildThatOutlivedTheInboxRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.newGap(holdLong)
	s.send(s.event("k-3", Paid{N: 0, Fail: "later"}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.clear()
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.broken.Store(true)
	id := s.rebuild(1, false)
	s.waitCount(2, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
	s.waitCount(1, "SELECT count(*) FROM done")
	_, err = s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.cancel(id)
	s.waitUndone(id)
	s.broken.Store(false)
	_, err = s.pool.Exec(t.Context(), "UPDATE troupe.held SET next_try = clock_timestamp()")
	require.NoError(t, err)
	s.send(s.event("k-4", Paid{N: 0}))
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	s.waitCount(3, "SELECT count(*) FROM done")
	require.Equal(t, map[string][]int{"k-0": {0}, "k-1": {0}, "k-4": {0}}, s.lines())
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE key = 'k-0'"))
	require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestACancelledRebuildNeedsNoMember to make way for the next one: the member that comes then undoes the first and begins the second.
func TestACancelledRebuildNeedsNoMember(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition, holdLong))
	s.send(s.event("k-0", Paid{N: 0, Fail: "later"}))
	s.send(s.events(0, 3, 4)[1:]...)
	s.waitCount(12, "SELECT count(*) FROM done")
	s.broken.Store(true)
	id := s.rebuild(1, false)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
	stop()
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.clear()
	s.broken.Store(false)
	s.cancel(id)
	id = s.rebuild(2, false)
	s.start(s.participant(onePartition, holdLong))
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": upTo(4), "k-1": upTo(4), "k-2": upTo(4)}, s.lines())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestARebuildSendsNothingToRetryTopics although its handler has got some since the rebuild was started: on a retry topic the message would
// be a duplicate of the one that was handled before.
func TestARebuildSendsNothingToRetryTopics(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition))
	s.send(s.event("k-0", Paid{N: 0, Fail: "later"}), s.event("k-0", Paid{N: 1}))
	s.waitCount(2, "SELECT count(*) FROM done")
	stop()
	s.clear()
	s.broken.Store(true)
	id := s.rebuild(1, false)
	p := s.new(onePartition)
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if s.broken.Load() && e.Body.Fail != "" {
			return errAsked
		}
		return project(ctx, tx, nil, string(e.Message.Key), e.Body.N)
	}, participant.RetryTopics(time.Second))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
	s.broken.Store(false)
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": upTo(2)}, s.lines())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestAMessageThatRunsWhenARebuildBeginsEmitsTheSameIDs handles it once more without the rebuild, as after a failover to a standby that lags:
// the services that consume its entries do nothing twice.
func TestAMessageThatRunsWhenARebuildBeginsEmitsTheSameIDs(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.newGap()
	s.waitFinished(s.rebuild(1, false))
	const emitted = "SELECT count(*) FROM troupe.outbox WHERE key = 'k-0' AND type = 'Refunded' AND id = $1"
	var id uuid.UUID
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT id FROM troupe.outbox WHERE key = 'k-0' AND type = 'Refunded'").Scan(&id))
	s.clear()
	_, err := s.pool.Exec(t.Context(), forget+"; DELETE FROM troupe.rebuild_partitions; DELETE FROM troupe.rebuilds; "+
		"DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark = -1, watermark_epoch = -1, term = term - 1")
	require.NoError(t, err)
	s.waitCount(1, emitted, id)
}

// TestObserversSeeAMessageThatRunsWhenARebuildBegins checks that joins and expectations get an event that was not handled when a rebuild
// began, and no event once more.
func TestObserversSeeAMessageThatRunsWhenARebuildBegins(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	_, observed := s.newGap()
	observed.Store(0) // both were observed, and one of these runs was rolled back
	s.waitFinished(s.rebuild(1, false))
	require.Equal(t, map[string][]int{"k-0": {0}, "k-1": {0}}, s.lines())
	require.EqualValues(t, 1, observed.Load())
}

// TestObserversDoNotSeeARedrivenMessageOfARebuild checks that joins and expectations, which had the event when it was handled first, do not
// get it when it fails in a rebuild and is redriven.
func TestObserversDoNotSeeARedrivenMessageOfARebuild(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	first, observed := s.newGap(onlyOnce)
	s.waitFinished(s.rebuild(1, false))
	s.broken.Store(true)
	s.waitFinished(s.rebuild(2, false))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 131072"))
	s.clear()
	s.broken.Store(false)
	observed.Store(0)
	s.send(s.redriven(first, 131073))
	s.waitCount(1, "SELECT count(*) FROM done")
	require.Zero(t, observed.Load())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestADeadLetterOfAMessageThatRunsWhenARebuildBegins checks that it is one of the message and not of the rebuild: its copy is sent, and its
// redrive writes to the outbox and the deadlines.
func TestADeadLetterOfAMessageThatRunsWhenARebuildBegins(t *testing.T) {
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
	for name, id := range map[string]string{
		"a UUID of today": envelope.NewID(), "a UUID of another version": "7b6e1f3c-7c1d-4d3a-9d0b-6f3b1c2d4e61", "an id of its source": "paid-1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 1)
			stop := s.start(s.participant(onePartition, onlyOnce))
			s.broken.Store(true)
			first := s.event("k-0", Paid{N: 0, Fail: "error"})
			first.ID = id
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
			rebuild := s.rebuild(1, false)
			s.start(s.participant(onePartition, onlyOnce)) // takes the lease, with which a rebuild begins
			s.send(s.event("k-1", Paid{N: 0}))
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'k-1'")
			s.send(s.redriven(first, 1))
			s.waitFinished(rebuild)
			require.Equal(t, map[string][]int{"k-0": {0, 0}, "k-1": {0, 0}}, s.lines(), "the redriven message, and then the rebuild")
			require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE key = 'k-0'"))
		})
	}
}

// TestAnOperatorGivesUpAHeldMessageOfARebuild checks that it becomes a dead letter of the rebuild, with neither copy nor event, and that one
// that the rebuild handles first becomes a dead letter as ever.
func TestAnOperatorGivesUpAHeldMessageOfARebuild(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"handled before", "handled before, behind one that was not", "handled first"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 1)
			redrives, written := 65536, 0
			switch name {
			case "handled before":
				s.start(s.participant(onePartition, holdLong))
				s.send(s.event("k-0", Paid{N: 0, Fail: "later"}), s.event("k-1", Paid{N: 0}))
				s.waitCount(2, "SELECT count(*) FROM done")
			case "handled before, behind one that was not":
				s.newGap(holdLong)
				s.send(s.event("k-3", Paid{N: 0, Fail: "later"}))
				s.waitCount(1, "SELECT count(*) FROM done")
			case "handled first":
				s.newGap(holdLong)
				redrives, written = 0, 2
			}
			_, err := s.pool.Exec(t.Context(), forget)
			require.NoError(t, err)
			s.clear()
			s.broken.Store(true)
			id := s.rebuild(1, false)
			if name == "handled before, behind one that was not" {
				s.waitCount(2, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
				_, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.held WHERE key = 'k-0'")
				require.NoError(t, err)
			}
			s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
			_, err = s.desk().Release(t.Context(), s.heldPlace(), repair.ReleaseConfig{By: ann})
			require.NoError(t, err)
			s.waitFinished(id)
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = $1", redrives))
			require.Equal(t, written, s.count("SELECT count(*) FROM troupe.outbox"))
		})
	}
}

// TestAnOperatorGivesUpAHeldMessageThatWasRedrivenOfARebuild checks that nothing is sent of its dead letter: other services would compensate
// an event that had its effect long ago.
func TestAnOperatorGivesUpAHeldMessageThatWasRedrivenOfARebuild(t *testing.T) {
	t.Parallel()
	for name, emit := range map[string]bool{"without emit": false, "with emit": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 1)
			stop := s.start(s.participant(onePartition, onlyOnce))
			first := s.event("k-0", Paid{N: 0, Fail: "later"})
			s.send(first, s.event("k-1", Paid{N: 0}))
			s.waitCount(2, "SELECT count(*) FROM done")
			s.broken.Store(true)
			s.waitFinished(s.rebuild(1, emit))
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 65536"))
			stop()
			s.clear()
			s.start(s.participant(onePartition, holdLong))
			s.send(s.redriven(first, 65537))
			s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
			_, err := s.desk().Release(t.Context(), s.heldPlace(), repair.ReleaseConfig{By: ann})
			require.NoError(t, err)
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 65537"))
			written := 0
			if emit {
				written = 2
			}
			require.Equal(t, written, s.count("SELECT count(*) FROM troupe.outbox"))
		})
	}
}

// TestAnOperatorGivesUpAHeldMessageOfACancelledRebuild before a member has come: the message had its effect before the rebuild, and is no
// dead letter although the inbox has forgotten it. One that had not been handled is one.
func TestAnOperatorGivesUpAHeldMessageOfACancelledRebuild(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition, holdLong))
	s.send(s.event("k-0", Paid{N: 0, Fail: "later"}), s.event("k-1", Paid{N: 0}))
	s.waitCount(2, "SELECT count(*) FROM done")
	s.broken.Store(true)
	id := s.rebuild(1, false)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
	stop()
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.clear()
	s.cancel(id)
	r, err := s.desk().Release(t.Context(), s.heldPlace(), repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	require.Equal(t, uuid.Nil, r.DeadLetter)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestARebuildWaitsForEachDeadLetterOfItsGroup although it is of another topic, handler and type: which message a redrive of it brings is
// not worked out. Dead letters of other groups, and discarded ones, do not delay it.
func TestARebuildWaitsForEachDeadLetterOfItsGroup(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.start(s.participant(onePartition))
	s.send(s.events(0, 1, 2)...)
	s.waitCount(2, "SELECT count(*) FROM done")
	const insert = `
		INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", headers, message_id,
			message_type, correlation_id, status, first_failed_at, last_failed_at)
		SELECT g, g || '/Noted', 'permanent', 'none', 1, 'elsewhere', gen_random_uuid(), 7, 0, '', 'n-' || status, 'Noted', '', status, now(), now()
		FROM (VALUES ($1, 'discarded'), ($1, 'open'), ('another', 'open')) AS l (g, status)`
	_, err := s.pool.Exec(t.Context(), insert, s.hop.String())
	require.NoError(t, err)
	s.clear()
	id := s.rebuild(1, false)
	require.Zero(t, s.pending())
	_, partitions, _, err := rebuilds.Desk{Pool: s.pool}.Show(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 1, partitions[0].DeadLetters)
	_, err = s.desk().Discard(t.Context(), repair.Filter{Group: s.hop.String()}, ann)
	require.NoError(t, err)
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": upTo(2)}, s.lines())
}

// TestAHandlerInARebuildCancelsNoDeadline that a message after the rebuilt one has scheduled.
func TestAHandlerInARebuildCancelsNoDeadline(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	p := s.new(onePartition)
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if err := project(ctx, tx, nil, string(e.Message.Key), e.Body.N); err != nil {
			return err
		}
		if e.Body.N == 0 {
			return p.Cancel(ctx, tx, "late", "")
		}
		return p.Schedule(ctx, tx, participant.Deadline{Name: "late", After: time.Duration(e.Body.N) * time.Hour, Body: e.Body})
	})
	participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
	s.start(p)
	s.send(s.event("k-0", Paid{N: 0}), s.event("k-0", Paid{N: 3}), s.event("k-0", Paid{N: 2}), s.event("k-0", Paid{N: 1}))
	s.waitCount(4, "SELECT count(*) FROM done")
	var before, after string
	const deadlines = "SELECT string_agg(d::text, ' ') FROM troupe.deadlines AS d"
	require.NoError(t, s.pool.QueryRow(t.Context(), deadlines).Scan(&before))
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE changes (id bigint); "+
		"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO changes VALUES (1); RETURN NULL; END $$; "+
		"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON troupe.deadlines FOR EACH ROW EXECUTE FUNCTION note()")
	require.NoError(t, err)
	s.waitFinished(s.rebuild(1, false))
	require.Equal(t, []int{0, 3, 2, 1, 0, 3, 2, 1}, s.lines()["k-0"])
	require.Zero(t, s.count("SELECT count(*) FROM changes"))
	require.NoError(t, s.pool.QueryRow(t.Context(), deadlines).Scan(&after))
	require.Equal(t, before, after)
}

// TestARebuildThatIsCancelledWhileItBegins checks that the member which begins it does not read the partition again without a rebuild: the
// inbox has forgotten its messages.
func TestARebuildThatIsCancelledWhileItBegins(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition))
	s.send(s.events(0, 2, 5)...)
	s.waitCount(10, "SELECT count(*) FROM done")
	stop()
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.clear()
	id := s.rebuild(1, false)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), "SELECT FROM troupe.rebuild_partitions FOR UPDATE")
	require.NoError(t, err)
	s.start(s.participant(onePartition))
	const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	s.waitCount(1, waiting) // the member, at the partition
	cancelled := make(chan error, 1)
	go func() {
		cancelled <- rebuilds.Desk{Pool: s.pool}.Cancel(context.WithoutCancel(t.Context()), id, ann)
	}()
	testkit.Wait(t, "the cancellation to end, or to wait for the member", func() (bool, error) {
		return len(cancelled) == 1 || s.count(waiting) == 2, nil
	})
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-cancelled)
	s.waitUndone(id)
	s.send(s.event("k-0", Paid{N: 5}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 5")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"), "nothing is written again")
}

// TestARebuildThatIsStartedAndCancelledWhileAMemberTakesItsLease checks that the member begins it only with a lease that it takes later.
func TestARebuildThatIsStartedAndCancelledWhileAMemberTakesItsLease(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition))
	s.send(s.events(0, 2, 5)...)
	s.waitCount(10, "SELECT count(*) FROM done")
	s.waitFinished(s.rebuild(1, false))
	stop()
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.rebuilds SET cancelled_at = finished_at; "+forget)
	require.NoError(t, err)
	s.clear()
	block := func(id int64) pgx.Tx {
		tx, err := s.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SELECT FROM troupe.rebuild_partitions WHERE rebuild = $1 FOR UPDATE", id)
		require.NoError(t, err)
		return tx
	}
	const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	first := block(1)
	defer first.Rollback(context.WithoutCancel(t.Context()))
	s.start(s.participant(onePartition))
	s.waitCount(1, waiting) // the member, where it undoes the first rebuild
	id := s.rebuild(2, false)
	second := block(id)
	defer second.Rollback(context.WithoutCancel(t.Context()))
	require.NoError(t, first.Rollback(t.Context()))
	s.waitCount(1, "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", second.Conn().PgConn().PID()) // where it begins the second
	cancelled := make(chan error, 1)
	go func() {
		cancelled <- rebuilds.Desk{Pool: s.pool}.Cancel(context.WithoutCancel(t.Context()), id, ann)
	}()
	testkit.Wait(t, "the cancellation to end, or to wait for the member", func() (bool, error) {
		return len(cancelled) == 1 || s.count(waiting) == 2, nil
	})
	require.NoError(t, second.Rollback(t.Context()))
	require.NoError(t, <-cancelled)
	s.waitUndone(id)
	s.send(s.event("k-0", Paid{N: 5}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 5")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"), "nothing is written again")
}

// TestARebuildOfATopicThatIsWrittenInTransactions ends, although the last offsets of the partition are the ones of markers and of an aborted
// transaction.
func TestARebuildOfATopicThatIsWrittenInTransactions(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	writer, err := kafka.NewClient(s.brokers, kgo.TransactionalID(s.hop.String()))
	require.NoError(t, err)
	defer writer.Close()
	write := func(end kgo.TransactionEndTry, all ...envelope.Message) {
		require.NoError(t, writer.BeginTransaction())
		for _, m := range all {
			require.NoError(t, writer.ProduceSync(t.Context(), kafka.Record(m)).FirstErr())
		}
		require.NoError(t, writer.EndTransaction(t.Context(), end))
	}
	s.start(s.participant(onePartition))
	write(kgo.TryCommit, s.events(0, 2, 3)...)
	write(kgo.TryAbort, s.event("k-0", Paid{N: 7}))
	s.waitCount(6, "SELECT count(*) FROM done")
	s.clear()
	s.waitFinished(s.rebuild(1, false))
	require.Equal(t, map[string][]int{"k-0": upTo(3), "k-1": upTo(3)}, s.lines())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestDeadlinesWaitForMessagesBehindARebuild checks deadlines that report missing messages: the messages wait in the partition while a rebuild
// reads it again. Other deadlines are fired meanwhile.
func TestDeadlinesWaitForMessagesBehindARebuild(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	began, may := make(chan int), make(chan struct{})
	var blocks atomic.Bool
	p := s.new(onePartition, func(c *participant.Config) { c.Batch = 1 })
	p.BacklogLimit(time.Hour)
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if blocks.Load() && (e.Body.N == 0 || e.Body.N == 3) {
			began <- e.Body.N
			<-may
		}
		return project(ctx, tx, nil, string(e.Message.Key), e.Body.N)
	})
	for _, name := range []string{overdueName, "first", "second"} {
		participant.OnDeadline(p, name, func(context.Context, pgx.Tx, participant.Due[Overdue]) error { return nil })
	}
	p.Extension().FireAfterBacklog(overdueName)
	s.start(p)
	s.send(s.events(0, 1, 3)...)
	s.waitCount(3, "SELECT count(*) FROM done")
	testkit.Wait(t, "the group to have handled its backlog", func() (bool, error) {
		err := s.schedule(p, participant.Deadline{Name: overdueName, Scope: "before", Body: Overdue{}})
		return s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands()) > 0, err
	})
	s.clear()
	due := func(name string) {
		require.NoError(t, s.schedule(p, participant.Deadline{Name: name, Scope: name, Body: Overdue{}, At: time.Now().Add(-time.Hour)}))
	}
	fired := func(name string) int {
		return s.count("SELECT count(*) FROM troupe.deadlines WHERE name = $1 AND fired_at IS NOT NULL", name)
	}
	firstFired := func(name string) {
		t.Helper()
		due(name)
		testkit.Wait(t, "another deadline", func() (bool, error) { return fired(name) == 1, nil })
		require.Zero(t, fired(overdueName))
	}

	blocks.Store(true)
	id := s.rebuild(1, false)
	require.Equal(t, 0, <-began)
	due(overdueName)
	firstFired("first")
	s.send(s.event("k-0", Paid{N: 3})) // in time
	may <- struct{}{}
	require.Equal(t, 3, <-began)
	s.waitFinished(id)
	firstFired("second")
	may <- struct{}{}
	testkit.Wait(t, "the deadline", func() (bool, error) { return fired(overdueName) == 1, nil })
	require.Equal(t, upTo(4), s.lines()["k-0"])
}

// TestDeadlinesWaitForARebuildThatAnotherMemberBegins covers the time before this member knows of the rebuild, which it looks for every two
// seconds.
func TestDeadlinesWaitForARebuildThatAnotherMemberBegins(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	p := s.participant(onePartition)
	p.BacklogLimit(time.Hour)
	participant.OnDeadline(p, overdueName, func(context.Context, pgx.Tx, participant.Due[Overdue]) error { return nil })
	p.Extension().FireAfterBacklog(overdueName)
	s.start(p)
	s.send(s.events(0, 1, 3)...)
	s.waitCount(3, "SELECT count(*) FROM done")
	fired := func(name string) int {
		return s.count("SELECT count(*) FROM troupe.deadlines WHERE name = $1 AND fired_at IS NOT NULL", name)
	}
	due := func(tx pgx.Tx, name string) error {
		return p.Schedule(t.Context(), tx, participant.Deadline{Name: name, Scope: name, Body: Overdue{}, At: time.Now().Add(-time.Hour)})
	}
	testkit.Wait(t, "the group to have handled its backlog", func() (bool, error) {
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error { return due(tx, overdueName) })
		return s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands()) > 0, err
	})
	s.clear()
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `
			WITH l AS (
			  INSERT INTO troupe.leases (consumer_group, topic, partition, owner, topic_id, watermark) VALUES ($1, $2, 1, 'another', gen_random_uuid(), 3) RETURNING *
			), r AS (
			  INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit) VALUES ($1, 1, '{Paid}', 'epoch', false) RETURNING *
			)
			INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset, watermark, epoch, until, began_at)
			SELECT r.id, l.topic, l.partition, l.topic_id, r.handlers, 0, 9, 0, 10, now() FROM l, r`, s.hop.String(), s.bank.Events())
		if err == nil {
			err = due(tx, overdueName)
		}
		if err == nil {
			err = p.Schedule(t.Context(), tx, participant.Deadline{Name: "late", Scope: "late", Body: Paid{}, At: time.Now().Add(-time.Hour)})
		}
		return err
	}))
	testkit.Wait(t, "another deadline", func() (bool, error) { return fired("late") == 1, nil })
	require.Zero(t, fired(overdueName))
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.leases SET watermark = 9 WHERE partition = 1")
	require.NoError(t, err)
	testkit.Wait(t, "the deadline", func() (bool, error) { return fired(overdueName) == 1, nil })
}

// TestARebuildWaitsForAHeldMessage whose member takes the lease: the rebuild must not handle the message first, without its writes, and have
// the held one passed over.
func TestARebuildWaitsForAHeldMessage(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition, holdLong))
	s.broken.Store(true)
	s.send(s.event("k-0", Paid{N: 0, Fail: "later"}), s.event("k-1", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
	s.waitCount(1, "SELECT count(*) FROM done")
	stop()
	s.broken.Store(false)
	s.clear()
	id := s.rebuild(1, false)
	s.start(s.participant(onePartition, holdLong))
	s.send(s.event("k-2", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'k-2'")
	require.Zero(t, s.pending(), "the member joins the group again only when the rebuild can begin")
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.held SET next_try = clock_timestamp()")
	require.NoError(t, err)
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": {0, 0}, "k-1": {0}, "k-2": {0, 0}}, s.lines(), "the held message, and then the rebuild")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE key = 'k-0'"))
}

// TestNewMessagesInABatchWithOnesOfARebuildKeepTheirWrites reads both with one fetch: only the entries of the rebuild are discarded.
func TestNewMessagesInABatchWithOnesOfARebuildKeepTheirWrites(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	large := func(c *participant.Config) { c.Batch, c.Concurrency = 20, 1 }
	stop := s.start(s.participant(onePartition, large))
	s.send(s.events(0, 4, 1)...)
	s.waitCount(4, "SELECT count(*) FROM done")
	stop()
	s.clear()
	s.send(s.events(1, 8, 1)...)
	id := s.rebuild(1, false)
	s.start(s.participant(onePartition, large))
	s.waitFinished(id)
	s.waitCount(12, "SELECT count(*) FROM done")
	require.Equal(t, []int{0, 1}, s.lines()["k-0"])
	require.Equal(t, 16, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Equal(t, 8, s.count("SELECT count(*) FROM troupe.deadlines"))
}

// TestNewMessagesBehindHeldOnesOfARebuildKeepTheirWrites has both wait for the first message of their key.
func TestNewMessagesBehindHeldOnesOfARebuildKeepTheirWrites(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.start(s.participant(onePartition, holdLong))
	s.send(s.event("k-0", Paid{N: 0, Fail: "later"}), s.event("k-0", Paid{N: 1}))
	s.waitCount(2, "SELECT count(*) FROM done")
	s.clear()
	s.broken.Store(true)
	id := s.rebuild(1, false)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
	s.send(s.event("k-0", Paid{N: 2}), s.event("k-0", Paid{N: 3}))
	s.waitCount(4, "SELECT count(*) FROM troupe.held")
	s.broken.Store(false)
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.held SET next_try = clock_timestamp() WHERE attempts > 0")
	require.NoError(t, err)
	s.waitFinished(id)
	s.waitCount(4, "SELECT count(*) FROM done")
	require.Equal(t, upTo(4), s.lines()["k-0"])
	require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.deadlines"))
}
