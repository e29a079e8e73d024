package participant_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestMessagesOnAFormerRetryTopicAreHandled checks a next version with another delay or without retry topics. A message that
// fails again goes to the next topic of its handler, if there is one, or becomes a dead letter, and holds no key.
func TestMessagesOnAFormerRetryTopicAreHandled(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]participant.HandlerOption{
		"another delay": {participant.RetryTopics(2 * time.Second)}, "no retry topics": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			former := s.hop.Retry(time.Second)
			p := s.new(onePartition)
			participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
				return participant.Outcome{}, errAsked
			}, participant.RetryTopics(time.Second, time.Hour))
			s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 2, Fail: "error"}))
			stop := s.start(p)
			s.waitCount(2, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", former)
			s.waitTopic(former)
			stop()
			next := s.new(onePartition)
			participant.Handle(next, count, opts...)
			s.start(next)
			testkit.Wait(t, "ready", func() (bool, error) { return next.Ready() == nil, nil })
			s.publish(former, 1) // by a relay that was behind
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = 1")
			s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 4 AND topic = $1", s.hop.Commands())
			require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
		})
	}
}

// TestAFormerRetryTopicThatNoMemberWasAssignedIsFound checks a version that was replaced before its retry topic was assigned to
// it: the group has neither a lease nor an offset of the topic.
func TestAFormerRetryTopicThatNoMemberWasAssignedIsFound(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	former := s.hop.Retry(time.Second)
	p := s.new(onePartition, func(c *participant.Config) {
		c.Immediate, c.Kafka = -1, append(c.Kafka, kgo.ConsumeTopics(s.hop.Commands()))
	})
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		return participant.Outcome{}, errAsked
	}, participant.RetryTopics(time.Second))
	s.send(s.command("a", Count{N: 1}))
	stop := s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", former)
	stop()
	require.Zero(t, s.count("SELECT count(*) FROM troupe.leases WHERE topic = $1 AND term > 0", former))
	s.publish(former, 1)
	next := s.new(onePartition)
	participant.Handle(next, count)
	s.start(next)
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 1")
}

// TestAFormerRetryTopicThatTheBrokerNamesLateIsConsumed checks a next version that starts while the broker does not name the
// topic, as one that has just learned of it.
func TestAFormerRetryTopicThatTheBrokerNamesLateIsConsumed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	former := s.hop.Retry(time.Second)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		return participant.Outcome{}, errAsked
	}, participant.RetryTopics(time.Second))
	s.send(s.command("a", Count{N: 1}))
	stop := s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", former)
	s.waitTopic(former)
	stop()
	_, err := kadm.NewClient(s.client).DeleteTopics(t.Context(), former)
	require.NoError(t, err)
	testkit.Wait(t, "the topic to be gone", func() (bool, error) {
		ids, err := kafka.TopicIDs(t.Context(), s.client, former)
		return len(ids) == 0, err
	})
	next := s.new(onePartition)
	participant.Handle(next, count)
	s.start(next)
	testkit.Wait(t, "ready", func() (bool, error) { return next.Ready() == nil, nil })
	s.topic(former)
	s.publish(former, 1)
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 1")
}

// TestAMessageHeldOnARetryTopicKeepsItsIdentity checks a message without a source, to which the relay adds its own, and one without
// an id. A next version has no handler for them and holds them. Both are found by their first ids; a released one takes no
// effect when its sender sends it again.
func TestAMessageHeldOnARetryTopicKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	topic := s.hop.Retry(time.Second)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		return participant.Outcome{}, errAsked
	}, participant.RetryTopics(time.Second))
	numbered, unnamed := s.numbered("", "1", Count{N: 1}), s.numbered("", "", Count{N: 2})
	unnamed.Key = []byte("b")
	s.send(numbered, unnamed)
	stop := s.start(p)
	s.waitCount(2, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	stop()
	s.publish(topic, 1)
	next := s.new(onePartition, func(c *participant.Config) { c.UnknownTypeWait = time.Hour })
	participant.On(next, topics.MustHop(s.hop.Flow(), "order"), func(context.Context, pgx.Tx, participant.Event[Count]) error { return nil })
	stop = s.start(next)
	s.waitCount(2, "SELECT count(*) FROM troupe.held WHERE topic = $1", topic)
	stop()

	ids, err := kafka.TopicIDs(t.Context(), s.client, s.hop.Commands())
	require.NoError(t, err)
	desk, err := repair.New(repair.Config{Pool: s.pool})
	require.NoError(t, err)
	for _, id := range []string{"1", fmt.Sprintf("%s/0/1", uuid.UUID(ids[s.hop.Commands()]))} {
		found, _, err := desk.Find(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, found, 1, id)
		require.Equal(t, repair.Held, found[0].State)
		if id == "1" {
			require.Equal(t, numbered.Identity(), found[0].Identity)
		} else {
			require.Equal(t, s.text("SELECT message_id FROM troupe.held WHERE key = 'b'"), found[0].Identity)
		}
		r, err := desk.Release(t.Context(), *found[0].Place, repair.ReleaseConfig{By: admin.Actor{Name: "ann", Reason: "test"}})
		require.NoError(t, err)
		require.NotEqual(t, uuid.Nil, r.DeadLetter)
		found, _, err = desk.Find(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, found, 1, id)
		require.Equal(t, repair.Dead, found[0].State)
	}
	last := s.new(onePartition)
	participant.Handle(last, count)
	s.send(numbered, s.command("c", Count{N: 3}))
	s.start(last)
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 3")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done"), "the message that was released is a dead letter")
}

// TestHeldMessagesOfATopicThatIsNotConsumedAreLogged checks the log, since no member tries them again.
func TestHeldMessagesOfATopicThatIsNotConsumedAreLogged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, holdLong)
	participant.On(p, topics.MustHop(s.hop.Flow(), "order"), func(context.Context, pgx.Tx, participant.Event[Count]) error { return errAsked })
	s.send(s.heard("a", Count{N: 1}))
	stop := s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.held")
	stop()
	var log safeBuffer
	p = s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	waitFor(t, "the log", func() bool {
		return strings.Contains(log.String(), "messages are held of a topic that this group does not consume any more")
	})
	topic := topics.MustHop(s.hop.Flow(), "order").Events()
	require.Contains(t, log.String(), topic)
	require.Equal(t, []participant.Stranded{{Topic: topic, Messages: 1}}, p.Stats().Stranded)
}

// TestRetryTopicsOfAHopsFormerNameAreLogged checks a group that kept its own name: messages may wait there.
func TestRetryTopicsOfAHopsFormerNameAreLogged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	group := s.hop.String()
	p := s.new(onePartition, func(c *participant.Config) { c.Group = group })
	participant.Handle(p, count, participant.RetryTopics(time.Second))
	former := s.hop.Retry(time.Second)
	stop := s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1", former)
	stop()
	var log safeBuffer
	next := s.new(onePartition, func(c *participant.Config) {
		c.Hop, c.Group, c.Log = topics.MustHop(s.hop.Flow(), "charge"), group, zerolog.New(&log)
	})
	participant.Handle(next, count, participant.RetryTopics(time.Second))
	s.start(next)
	waitFor(t, "the log", func() bool { return strings.Contains(log.String(), "messages that wait there are not retried") })
	require.Contains(t, log.String(), former)
}
