package participant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
)

// TestARebuildIsRefusedWhileFormerRetryTopicsExist since messages may wait there that have not taken effect. A dead letter that failed there
// delays the rebuild, once the topic is deleted: the rebuild must not handle its message without its writes, and have the redriven one
// passed over.
func TestARebuildIsRefusedWhileFormerRetryTopicsExist(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if s.broken.Load() && e.Body.Fail != "" {
			return errAsked
		}
		return project(ctx, tx, nil, string(e.Message.Key), e.Body.N)
	}, participant.RetryTopics(time.Second))
	stop := s.start(p)
	s.broken.Store(true)
	s.send(s.events(0, 1, 3)...)
	s.send(s.event("k-1", Paid{N: 0, Fail: "later"}))
	waits := s.hop.Retry(time.Second)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", waits)
	require.Equal(t, 1, s.publish(waits, 1))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE status = 'open'")
	s.waitCount(3, "SELECT count(*) FROM done")
	stop()
	s.broken.Store(false)
	s.clear()

	desk := rebuilds.Desk{Pool: s.pool}
	spec := rebuilds.Spec{Handlers: []string{s.hop.String() + "/Paid"}, From: time.UnixMilli(1), Wait: true}
	stop = s.start(s.participant(onePartition))
	s.waitCount(2, "SELECT count(*) FROM troupe.handlers WHERE refusal LIKE '%former%'")
	_, err := desk.Plan(t.Context(), s.client, spec)
	require.ErrorContains(t, err, "former ones that exist still")
	stop()
	s.delete(waits)
	s.start(s.participant(onePartition))
	s.waitCount(2, "SELECT count(*) FROM troupe.handlers WHERE refusal IS NULL")
	plan, err := desk.Plan(t.Context(), s.client, spec)
	require.NoError(t, err)
	require.Equal(t, 1, plan.DeadLetters)
	id, err := desk.Start(t.Context(), plan, ann)
	require.NoError(t, err)
	require.Zero(t, s.pending())
	r, err := s.desk().Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: ann})
	require.NoError(t, err)
	require.Equal(t, 1, r.Redriven)
	require.Zero(t, s.pending())
	require.Equal(t, 1, s.publish(s.bank.Events(), 1))
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": upTo(3), "k-1": {0, 0}}, s.lines(), "the redriven message, and then the rebuild")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE key = 'k-1'"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestARedrivenMessageOfARebuildThatEmitsOnAPartitionThatHasNotBegun checks that its entries are written although its member has taken the lease
// before the rebuild was started: a message without a key goes to any partition.
func TestARedrivenMessageOfARebuildThatEmitsOnAPartitionThatHasNotBegun(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.start(s.participant(onePartition))
	first := s.event("k-0", Paid{N: 0})
	s.send(first)
	s.waitCount(1, "SELECT count(*) FROM done")
	s.clear()
	_, err := s.pool.Exec(t.Context(), `
		WITH r AS (
		  INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit) VALUES ($1, 1, '{Paid}', 'epoch', true) RETURNING *
		)
		INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset)
		SELECT r.id, $2, 1, gen_random_uuid(), r.handlers, 0 FROM r`, s.hop.String(), s.bank.Events())
	require.NoError(t, err)
	s.send(s.redriven(first, 65537))
	s.waitCount(1, "SELECT count(*) FROM done")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines"))
}

// TestARedrivenMessageOfARebuildThatRunsWhenAnotherBegins begins a second rebuild, from an offset behind the message that failed in the first,
// while the redriven message runs and a later one has ended: its redrive is older than the inbox keeps an id. Its entries are still
// discarded, and joins and expectations do not see it again.
func TestARedrivenMessageOfARebuildThatRunsWhenAnotherBegins(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"it takes effect": false, "it is a dead letter again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 1)
			first, observed := s.newGap(onlyOnce)
			s.waitFinished(s.rebuild(1, false))
			s.broken.Store(true)
			s.waitFinished(s.rebuild(2, false))
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 131072"))
			_, err := s.pool.Exec(t.Context(), "UPDATE troupe.dead_letters SET status = 'redriven'")
			require.NoError(t, err)
			s.clear()
			s.hangs.Store(true)
			s.send(s.redriven(first, 131073))
			s.send(s.event("k-1", Paid{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done")
			s.clear()
			s.broken.Store(fails)
			observed.Store(0)
			s.waitFinished(s.rebuild(3, false, 1))
			require.Zero(t, observed.Load())
			require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
			require.Zero(t, s.count("SELECT count(*) FROM troupe.deadlines"))
			if fails {
				require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 131073"))
				return
			}
			require.Equal(t, map[string][]int{"k-0": {0}, "k-1": {0, 1}}, s.lines())
		})
	}
}

// TestACancelledRebuildOfATopicThatWasCreatedAgainSkipsNothing starts a rebuild of the new topic while the lease has the watermark of the old one,
// and cancels it when the new topic's first events have been handled: that watermark counts no offsets of the new topic.
func TestACancelledRebuildOfATopicThatWasCreatedAgainSkipsNothing(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition))
	s.send(s.events(0, 2, 5)...)
	s.waitCount(10, "SELECT count(*) FROM done")
	stop()
	s.createAgain(s.bank.Events())
	id := s.rebuild(1, false)
	_, err := s.pool.Exec(t.Context(), `INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset)
		SELECT rebuild, topic, 1, topic_id, handlers, from_offset FROM troupe.rebuild_partitions`) // it waits for a member
	require.NoError(t, err)
	s.clear()
	s.start(s.participant(onePartition))
	s.send(s.events(5, 1, 2)...)
	s.waitCount(2, "SELECT count(*) FROM done")
	s.waitCount(1, "SELECT count(*) FROM troupe.leases AS l JOIN troupe.rebuild_partitions AS p USING (topic, partition, topic_id) WHERE l.watermark = 1")
	s.cancel(id)
	s.waitUndone(id)
	s.send(s.events(7, 1, 2)...)
	s.waitCount(4, "SELECT count(*) FROM done")
	require.Equal(t, []int{5, 6, 7, 8}, s.lines()["k-0"])
}

// TestARebuildThatIsCancelledBeforeItReachesAnEventBehindAGap checks that an event which had ended behind one that had not is not handled again:
// the inbox has forgotten it.
func TestARebuildThatIsCancelledBeforeItReachesAnEventBehindAGap(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	var hung atomic.Int32
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Drain = 1, 100*time.Millisecond })
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if s.hangs.Load() && (e.Body.Fail != "" || s.broken.Load()) {
			hung.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}
		return project(ctx, tx, nil, string(e.Message.Key), e.Body.N)
	})
	s.hangs.Store(true)
	s.start(p)
	s.send(s.event("k-0", Paid{N: 0, Fail: "later"}), s.event("k-1", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done")
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.clear()
	s.broken.Store(true)
	id := s.rebuild(1, false)
	waitFor(t, "both events to run in the rebuild", func() bool { return hung.Load() == 3 })
	s.hangs.Store(false)
	s.cancel(id)
	s.waitUndone(id)
	s.send(s.event("k-2", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'k-2'")
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'k-0'")
	require.Equal(t, map[string][]int{"k-0": {0}, "k-2": {0}}, s.lines())
}

// TestARebuildDoesNotWaitForItsOwnDeadLetters checks that a partition begins although the rebuild has an open dead letter of another one, and
// that its redriven message takes effect once, with what the rebuild writes, also if it comes to the partition before that begins: a message
// without a key goes to any partition.
func TestARebuildDoesNotWaitForItsOwnDeadLetters(t *testing.T) {
	t.Parallel()
	for name, redriven := range map[string]bool{"it is open": false, "its message has come to the partition": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 2)
			s.start(s.participant(onlyOnce))
			first := s.event("k-0", Paid{N: 0, Fail: "error"})
			const failing, other = 0, 1
			s.inPartition(failing, first)
			s.inPartition(other, s.event("k-1", Paid{N: 0}))
			s.waitCount(2, "SELECT count(*) FROM done")
			_, err := s.pool.Exec(t.Context(), `INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload,
					message_time, attempts, max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at)
				VALUES ($1, gen_random_uuid(), $3, 1, $2, sha256('key k-9'), 'k-9', '', '{}', now(), 1, 8, now() + interval '1 day', 'timeout', 'none', now(), now())`,
				s.hop.String(), s.bank.Events(), other)
			require.NoError(t, err)
			s.clear()
			s.broken.Store(true)
			id := s.rebuild(1, false)
			s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 65536 AND partition = $1", failing)
			want := map[string][]int{"k-1": {0}}
			s.broken.Store(false)
			if redriven {
				s.inPartition(other, s.redriven(first, 65537))
				s.waitCount(1, "SELECT count(*) FROM done")
				want["k-0"] = []int{0}
			}
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.rebuild_partitions WHERE began_at IS NULL"))
			_, err = s.pool.Exec(t.Context(), "DELETE FROM troupe.held")
			require.NoError(t, err)
			s.waitFinished(id)
			require.Equal(t, want, s.lines())
			require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
		})
	}
}

// inPartition sends messages to a partition, whatever their keys.
func (s *projection) inPartition(partition int32, ms ...envelope.Message) {
	s.t.Helper()
	client, err := kafka.NewClient(s.brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(s.t, err)
	defer client.Close()
	for _, m := range ms {
		r := kafka.Record(m)
		r.Partition = partition
		require.NoError(s.t, client.ProduceSync(s.t.Context(), r).FirstErr())
	}
}

// TestARebuildThatOutlivesTheInboxHandlesARedrivenMessageOnce prunes the inbox between a message and its redriven copy, which waits behind a held
// message: the rebuild handles the first of them.
func TestARebuildThatOutlivesTheInboxHandlesARedrivenMessageOnce(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	p := s.participant(onePartition, holdLong, func(c *participant.Config) { c.InboxRetention = time.Hour })
	s.start(p)
	first := s.event("k-0", Paid{N: 0})
	first.ID = "paid-1"
	s.send(first, s.event("k-0", Paid{N: 1, Fail: "later"}), s.redriven(first, 1))
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 2", s.bank.Events())
	s.clear()
	s.broken.Store(true)
	id := s.rebuild(1, false)
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.inbox SET handled_at = now() - interval '2 hours'")
	require.NoError(t, err)
	require.NoError(t, p.PruneInbox())
	s.broken.Store(false)
	_, err = s.pool.Exec(t.Context(), "UPDATE troupe.held SET next_try = clock_timestamp() WHERE attempts > 0")
	require.NoError(t, err)
	s.waitFinished(id)
	require.Equal(t, upTo(2), s.lines()["k-0"])
}
