package participant_test

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestMessagesOfALogThatWasSetBackAreHandled checks a broker that was restored from a copy of its disks: the log and the group's offset are older than
// the watermark, and messages that are written now have offsets up to the watermark. Their leader's epoch is not later than the watermark's, as when
// the leader had changed between the copy and the restore.
func TestMessagesOfALogThatWasSetBackAreHandled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var log safeBuffer
	run := func() (stop func()) { return s.startLogged(&log) }
	stop := run()
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 9", s.hop.Commands()))
	require.NotContains(t, log.String(), "set back")

	// The log had ten messages more that have ended, and two behind a gap: an owner crashed.
	_, err := s.pool.Exec(t.Context(), `
		WITH ahead AS (UPDATE troupe.leases SET watermark = 19, released_at = NULL WHERE topic = $1 RETURNING id, topic_id, watermark_epoch)
		INSERT INTO troupe.inbox_offsets (lease_id, topic_id, low, high, epoch)
		SELECT id, topic_id, 21, 22, watermark_epoch FROM ahead`, s.hop.Commands())
	require.NoError(t, err)
	stop = run()
	s.send(s.commandsFrom(5, 2, 2)...)
	s.expectAll(2, 7)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 13", s.hop.Commands())
	stop()
	require.Contains(t, log.String(), "lost the end of a log")

	// The log ends behind the watermark, but had two messages more that have ended, behind a gap.
	s.exec(`INSERT INTO troupe.inbox_offsets (lease_id, topic_id, low, high, epoch)
		SELECT id, topic_id, 16, 17, watermark_epoch FROM troupe.leases WHERE topic = $1`, s.hop.Commands())
	run()
	rest := s.commandsFrom(7, 2, 6) // up to offset 25
	s.send(rest[0])
	s.waitCount(15, "SELECT count(*) FROM done")
	s.send(rest[1:]...)
	s.expectAll(2, 13)
}

// TestALogThatWasSetBackIsKnownToTheNextOwner has an owner that notices the end of the log, and ends before a message has ended.
func TestALogThatWasSetBackIsKnownToTheNextOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	run := func(handle func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error)) (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) { c.Drain = time.Millisecond })
		participant.Handle(p, handle)
		return s.start(p)
	}
	stop := run(count)
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.hop.Commands())

	begun := make(chan struct{}, 1)
	stop = run(func(ctx context.Context, _ pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return participant.Outcome{}, ctx.Err()
	})
	s.send(s.command("k-0", Count{N: 6}))
	<-begun
	stop()
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 9", s.hop.Commands()))
	s.send(s.commandsFrom(6, 2, 6)...) // up to offset 22
	run(count)
	s.waitCount(23, "SELECT count(*) FROM done")
}

// TestALogThatWasSetBackIsNoticedBeforeAMessageComes: the members are restarted before the senders, which then send more messages at once than were lost.
func TestALogThatWasSetBackIsNoticedBeforeAMessageComes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var log safeBuffer
	run := func() (stop func()) { return s.startLogged(&log) }
	stop := run()
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.hop.Commands())

	stop = run()
	testkit.Wait(t, "the member notices the loss", func() (bool, error) { return strings.Contains(log.String(), "lost the end of a log"), nil })
	stop()
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 9", s.hop.Commands()))
	s.send(s.commandsFrom(5, 2, 10)...) // up to offset 29
	run()
	s.expectAll(2, 15)
}

// TestMessagesOfALogThatLostItsEndUnderAMemberAreHandled has a broker that has lost the log while a member reads it. Other messages, with the same
// offsets and the same epoch of their leader, have come since: for the database, which has forgotten the first ones, these are others.
func TestMessagesOfALogThatLostItsEndUnderAMemberAreHandled(t *testing.T) {
	t.Parallel()
	s, cluster := newClusterStage(t, kfake.NumBrokers(1), kfake.DataDir(t.TempDir()))
	var log safeBuffer
	run := func() (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) {
			c.Log, c.Kafka = zerolog.New(&log), append(c.Kafka, kgo.DisableFetchSessions()) // each request names its partitions
		})
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := run()
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	run()
	s.send(s.commandsFrom(5, 2, 2)...)
	s.expectAll(2, 7)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 13", s.hop.Commands())
	s.exec(forget + "; DELETE FROM done; DELETE FROM counters; DELETE FROM troupe.outbox")
	// A message that was handled out of turn: its offset is above the watermark.
	s.exec(`INSERT INTO troupe.inbox_offsets (lease_id, topic_id, low, high, epoch)
		SELECT id, topic_id, 15, 15, watermark_epoch FROM troupe.leases WHERE topic = $1`, s.hop.Commands())

	loseLog(cluster)
	s.expectAll(2, 7)
	s.waitCount(0, "SELECT count(*) FROM troupe.inbox_offsets WHERE high = 15")
	require.Contains(t, log.String(), "the broker has lost the end of a log")
}

// loseLog makes the broker answer one fetch as if it had lost the end of the log, and as if it could not tell where the log was cut.
func loseLog(cluster *kfake.Cluster) {
	var lost atomic.Bool
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.FetchRequest)
		if lost.Load() || len(req.Topics) == 0 {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.FetchResponse)
		for _, of := range req.Topics {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = of.Topic, of.TopicID
			for _, part := range of.Partitions {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.ErrorCode = part.Partition, kerr.OffsetOutOfRange.Code
				topic.Partitions = append(topic.Partitions, p)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		lost.Store(true)
		return answer, nil, true
	})
}

// TestALossOfAQuietLogRepeatsNoForgottenMessage: the last message of the log is days old, and the inbox does not know the first ones. It has
// forgotten them, or they had no handler when they came.
func TestALossOfAQuietLogRepeatsNoForgottenMessage(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, ages := range map[string]struct{ retention, old, quiet time.Duration }{
		"an inbox of 7 days":         {7 * day, 8 * day, 5 * day},
		"an inbox without an end":    {-1, 15 * day, 8 * day},
		"the longest InboxRetention": {math.MaxInt64, 15 * day, 8 * day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, cluster := newClusterStage(t, kfake.NumBrokers(1))
			var log safeBuffer
			p := s.new(onePartition, func(c *participant.Config) {
				c.Log, c.Kafka = zerolog.New(&log), append(c.Kafka, kgo.DisableFetchSessions()) // each request names its partitions
				c.InboxRetention = ages.retention
			})
			participant.Handle(p, count)
			s.start(p)
			for i, age := range []time.Duration{ages.old, ages.quiet} {
				r := kafka.Record(s.command([]string{"old", "quiet"}[i], Count{N: 1}))
				r.Timestamp = time.Now().Add(-age)
				require.NoError(t, s.client.ProduceSync(t.Context(), r).FirstErr())
			}
			s.waitCount(2, "SELECT count(*) FROM done")
			s.exec(forget)
			loseLog(cluster)
			testkit.Wait(t, "the member notices the loss", func() (bool, error) { return strings.Contains(log.String(), "lost the end of a log"), nil })
			s.send(s.command("new", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'new'")
			require.Equal(t, 3, s.count("SELECT count(*) FROM done"))
		})
	}
}

// TestALogThatLosesItsEndUnderAnIdleMemberIsNoticed has a member that has fetched no message yet, and has asked the broker for the end of the log, as
// it does every 5 s. The new leader of the partition has another end of the log, with the same offsets and epoch.
func TestALogThatLosesItsEndUnderAnIdleMemberIsNoticed(t *testing.T) {
	t.Parallel()
	s, cluster := newClusterStage(t, kfake.NumBrokers(2))
	var log safeBuffer
	run := func() (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
		p.Patience(2 * time.Second) // the end of the log is requested each second
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := run()
	s.send(s.commands(2, 7)...)
	s.expectAll(2, 7)
	stop()
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 13", s.hop.Commands())
	s.exec(forget + "; DELETE FROM done; DELETE FROM counters; DELETE FROM troupe.outbox")

	var requested atomic.Int32
	cluster.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range r.(*kmsg.ListOffsetsRequest).Topics {
			if topic.Topic == s.hop.Commands() {
				requested.Add(1)
			}
		}
		return nil, nil, false
	})
	run()
	testkit.Wait(t, "the member knows the end of the log", func() (bool, error) { return requested.Load() >= 6, nil })

	const lostFrom = 6
	cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.OffsetForLeaderEpochRequest)
		answer := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, of := range req.Topics {
			topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
			topic.Topic = of.Topic
			for _, part := range of.Partitions {
				p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				p.Partition, p.LeaderEpoch, p.EndOffset = part.Partition, part.LeaderEpoch, lostFrom
				topic.Partitions = append(topic.Partitions, p)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	require.NoError(t, cluster.MoveTopicPartition(s.hop.Commands(), 0, 1-cluster.LeaderFor(s.hop.Commands(), 0)))
	s.waitCount(14-lostFrom, "SELECT count(*) FROM done")
	require.Contains(t, log.String(), "the broker has lost the end of a log")
}

// newClusterStage returns a stage with a broker of its own, which the test makes lose messages.
func newClusterStage(t *testing.T, opts ...kfake.Opt) (*stage, *kfake.Cluster) {
	cluster, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s := newStage(t)
	s.brokers = cluster.ListenAddrs()
	s.client, err = kafka.NewClient(s.brokers)
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	s.provision(1)
	return s, cluster
}

// startLogged starts a member with one partition, which logs to log.
func (s *stage) startLogged(log *safeBuffer) (stop func()) {
	p := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(log) })
	participant.Handle(p, count)
	return s.start(p)
}
