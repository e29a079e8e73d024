package participant_test

import (
	"cmp"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestMessagesOfALogThatWasSetBackUnderARebuildAreHandled: the log ended ten messages later when the rebuild began. New messages at these offsets do not
// belong to the rebuild: they emit, and the ones of other handlers are handled, too.
func TestMessagesOfALogThatWasSetBackUnderARebuildAreHandled(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition))
	s.send(s.events(0, 1, 10)...)
	s.waitCount(10, "SELECT count(*) FROM done")
	stop()
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 9", s.bank.Events())
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.bank.Events())
	s.clear()

	id := s.rebuild(1, false)
	s.start(s.participant(onePartition))
	s.waitFinished(id)
	s.waitCount(10, "SELECT count(*) FROM done")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
	for n := range 6 {
		s.send(s.event("k-0", Paid{N: 10 + n}), s.event("k-1", Refunded{N: 1 + n}))
	}
	s.waitCount(22, "SELECT count(*) FROM done")
	require.Equal(t, upTo(16), s.lines()["k-0"])
	require.Equal(t, 12, s.count("SELECT count(*) FROM troupe.outbox"), "two entries of each new event of Paid")
}

// TestACancelledRebuildCountsNoLostOffset: the log loses its end while a rebuild runs, which is cancelled then.
func TestACancelledRebuildCountsNoLostOffset(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition))
	s.send(s.events(0, 1, 10)...)
	s.waitCount(10, "SELECT count(*) FROM done")
	stop()
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.bank.Events())
	s.broken.Store(true) // the rebuild holds its first message
	s.exec(forget)
	id := s.rebuild(1, false)
	s.exec("UPDATE troupe.rebuild_partitions SET from_offset = 9")
	s.start(s.participant(onePartition))
	s.waitCount(0, "SELECT count(*) FROM troupe.rebuild_partitions WHERE until IS NULL OR until > 10 OR watermark > 9")
	s.cancel(id)
	s.waitUndone(id)
	s.clear()
	s.send(s.events(10, 1, 10)...)
	s.waitCount(10, "SELECT count(*) FROM done WHERE n >= 10")
}

// TestALogThatWasSetBackUnderARebuildRepeatsNoForgottenMessage: the group's offset is the one of the rebuild, far before the end of the log, and the inbox
// has forgotten the messages between.
func TestALogThatWasSetBackUnderARebuildRepeatsNoForgottenMessage(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition))
	for _, m := range s.events(0, 1, 10) {
		r := kafka.Record(m)
		r.Timestamp = time.Now().AddDate(0, 0, -8)
		require.NoError(t, s.client.ProduceSync(t.Context(), r).FirstErr())
	}
	s.waitCount(10, "SELECT count(*) FROM done")
	stop()
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.bank.Events())
	s.exec(forget)
	s.clear()
	s.commitOffset(s.bank.Events(), 3)

	id := s.rebuild(1, false)
	s.start(s.participant(onePartition))
	s.waitFinished(id)
	s.send(s.event("k-0", Paid{N: 10}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 10")
	require.Equal(t, upTo(11), s.lines()["k-0"])
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"), "two entries of the new event of Paid")
}

// commitOffset sets the group's offset, as a participant commits it.
func (s *stage) commitOffset(topic string, at int64) {
	ids, err := kafka.TopicIDs(s.t.Context(), s.client, topic)
	require.NoError(s.t, err)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, At: at, LeaderEpoch: -1, Metadata: fmt.Sprintf("topic id %s", kafka.TopicID(topic, ids[topic]))})
	require.NoError(s.t, kadm.NewClient(s.client).CommitAllOffsets(s.t.Context(), s.hop.String(), offsets))
}

// TestALogThatWasSetBackWithAnOldOffsetRepeatsNoForgottenMessage: the copy of the disks has the group's offset of a rebuild that has ended since, or has
// none. It is far before the end of the log, and the inbox has forgotten the messages between.
func TestALogThatWasSetBackWithAnOldOffsetRepeatsNoForgottenMessage(t *testing.T) {
	t.Parallel()
	for name, copied := range map[string]func(*projection){
		"of a rebuild that finished": func(s *projection) { s.commitOffset(s.bank.Events(), 3) },
		"of a rebuild that was cancelled": func(s *projection) {
			s.exec("UPDATE troupe.rebuilds SET cancelled_at = finished_at; UPDATE troupe.rebuild_partitions SET undone_at = now()")
			s.commitOffset(s.bank.Events(), 3)
		},
		"no offset": func(s *projection) {
			s.exec("DELETE FROM troupe.rebuild_partitions; DELETE FROM troupe.rebuilds")
			deleted, err := kadm.NewClient(s.client).DeleteOffsets(t.Context(), s.hop.String(), kadm.TopicsSet{s.bank.Events(): {0: {}}})
			require.NoError(t, cmp.Or(err, deleted.Error()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 1)
			stop := s.start(s.participant(onePartition))
			for _, m := range s.events(0, 1, 10) {
				r := kafka.Record(m)
				r.Timestamp = time.Now().AddDate(0, 0, -8)
				require.NoError(t, s.client.ProduceSync(t.Context(), r).FirstErr())
			}
			s.waitCount(10, "SELECT count(*) FROM done")
			s.waitFinished(s.rebuild(1, false))
			stop()
			s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.bank.Events())
			s.exec(forget)
			s.clear()
			copied(s)

			s.start(s.participant(onePartition))
			s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 9", s.bank.Events())
			s.send(s.event("k-0", Paid{N: 10}))
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = 10")
			require.Equal(t, 1, s.count("SELECT count(*) FROM done"))
		})
	}
}

// TestALowerWatermarkIsStoredBeforeAMessageComes: an owner that is killed without a message after a loss leaves the lower watermark. The answer to its
// COMMIT gets lost: this is no loss in the database.
func TestALowerWatermarkIsStoredBeforeAMessageComes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	stop := s.startLogged(&safeBuffer{})
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.hop.Commands())

	var answers lostAnswers
	var log safeBuffer
	p := s.new(onePartition, func(c *participant.Config) { c.Pool, c.Log = answers.pool(s), zerolog.New(&log) })
	participant.Handle(p, count)
	answers.next.Store(true)
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 9", s.hop.Commands())
	s.send(s.commandsFrom(5, 2, 6)...) // up to offset 21
	s.expectAll(2, 11)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 21", s.hop.Commands())
	require.NotContains(t, log.String(), "the database has lost transactions")
}

// TestAWatermarkWhoseCommitGotNoAnswerAfterALossIsNoLoss: the answer to the COMMIT of the first watermark after a loss gets lost.
func TestAWatermarkWhoseCommitGotNoAnswerAfterALossIsNoLoss(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	stop := s.startLogged(&safeBuffer{})
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.hop.Commands())

	var answers lostAnswers
	var log safeBuffer
	p := s.new(onePartition, func(c *participant.Config) { c.Pool, c.Log = answers.pool(s), zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	testkit.Wait(t, "the member notices the loss", func() (bool, error) { return strings.Contains(log.String(), "lost the end of a log"), nil })
	answers.next.Store(true)
	s.send(s.commandsFrom(5, 2, 2)...)
	testkit.Wait(t, "a lost answer", func() (bool, error) { return answers.lost.Load() > 0, nil })
	s.send(s.commandsFrom(7, 2, 2)...)
	s.expectAll(2, 9)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 17", s.hop.Commands())
	require.NotContains(t, log.String(), "the database has lost transactions")
}

// TestALogThatWasSetBackIsNoticedOnceItsEndIsAvailable: a new leader does not know the end of the log at first.
func TestALogThatWasSetBackIsNoticedOnceItsEndIsAvailable(t *testing.T) {
	t.Parallel()
	s, cluster := newClusterStage(t, kfake.NumBrokers(1))
	stop := s.startLogged(&safeBuffer{})
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.hop.Commands())

	var refused atomic.Int32
	cluster.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if refused.Load() >= 3 {
			return nil, nil, false
		}
		req := r.(*kmsg.ListOffsetsRequest)
		answer := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, of := range req.Topics {
			topic := kmsg.NewListOffsetsResponseTopic()
			topic.Topic = of.Topic
			for _, part := range of.Partitions {
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition, p.ErrorCode = part.Partition, kerr.OffsetNotAvailable.Code
				topic.Partitions = append(topic.Partitions, p)
			}
			answer.Topics = append(answer.Topics, topic)
			if of.Topic == s.hop.Commands() {
				refused.Add(1)
			}
		}
		return answer, nil, true
	})
	var log safeBuffer
	s.startLogged(&log)
	testkit.Wait(t, "the member notices the loss", func() (bool, error) { return strings.Contains(log.String(), "lost the end of a log"), nil })
}

// TestALogOfAnotherMemberWithoutALeaderDelaysNoAssignment: the other partition has no leader, and the answer names both.
func TestALogOfAnotherMemberWithoutALeaderDelaysNoAssignment(t *testing.T) {
	t.Parallel()
	ends := map[int32]kafka.Place{0: {Offset: 5}, 1: {Err: kerr.LeaderNotAvailable}}
	require.False(t, participant.EndIsRetriable(ends, 0))
	require.True(t, participant.EndIsRetriable(ends, 1))
}

// TestALossIsStoredOnceTheBrokerSaysWhichMessagesAreRecent: the group's offset was not set back with the log, whose ten messages are new ones at offsets
// that were used before. The broker refuses the first requests for the recent ones.
func TestALossIsStoredOnceTheBrokerSaysWhichMessagesAreRecent(t *testing.T) {
	t.Parallel()
	s, cluster := newClusterStage(t, kfake.NumBrokers(1))
	stop := s.startLogged(&safeBuffer{})
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	s.exec("UPDATE troupe.leases SET watermark = 19 WHERE topic = $1", s.hop.Commands())
	s.exec(forget + "; DELETE FROM done; DELETE FROM counters; DELETE FROM troupe.outbox")
	s.commitOffset(s.hop.Commands(), 20)

	var refused atomic.Int32
	cluster.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.ListOffsetsRequest)
		if req.Topics[0].Topic != s.hop.Commands() || req.Topics[0].Partitions[0].Timestamp < 0 || refused.Add(1) > 2 {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, of := range req.Topics {
			topic := kmsg.NewListOffsetsResponseTopic()
			topic.Topic = of.Topic
			for _, part := range of.Partitions {
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition, p.ErrorCode = part.Partition, kerr.UnknownServerError.Code
				topic.Partitions = append(topic.Partitions, p)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	s.startLogged(&safeBuffer{})
	s.expectAll(2, 5)
	require.Greater(t, refused.Load(), int32(2))
}
