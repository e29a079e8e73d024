package participant_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// numbered returns a command of a producer that numbers its messages.
func (s *stage) numbered(source string, id string, body Count) envelope.Message {
	m := s.command("a", body)
	m.Source, m.ID, m.IdempotencyKey = source, id, ""
	return m
}

// TestTwoSourcesMayCountTheirMessages checks that each of their messages takes effect once, also if both come in one batch, and
// however often each is sent.
func TestTwoSourcesMayCountTheirMessages(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			p := s.new(onePartition, func(c *participant.Config) { c.Batch = batch })
			participant.Handle(p, count)
			s.provision(1)
			var sent []envelope.Message
			for n := range 3 {
				id := fmt.Sprint(n + 1)
				sent = append(sent, s.numbered("billing", id, Count{N: n}), s.numbered("shop", id, Count{N: 10 + n}), s.numbered("", id, Count{N: 20 + n}))
			}
			s.send(sent...)
			s.send(sent...)
			stop := s.start(p)
			s.waitCount(9, "SELECT count(*) FROM done")
			s.send(sent...)
			s.send(s.command("a", Count{N: 100}))
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = 100")
			require.Equal(t, 10, s.count("SELECT count(DISTINCT n) FROM done"))
			require.Equal(t, 10, s.count("SELECT count(*) FROM done"))
			events := make(map[string]bool)
			for _, e := range s.entries(s.hop.Events()) {
				events[e.ID] = true
			}
			require.Len(t, events, 10, "an answer of its own for each")
			stop()
		})
	}
}

// TestAUUIDIsOneMessageWhateverItsSource checks a forwarder that has written its own name.
func TestAUUIDIsOneMessageWhateverItsSource(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.provision(1)
	m := s.command("a", Count{N: 1})
	forwarded := m
	forwarded.Source = "bridge"
	s.send(m, forwarded, s.command("a", Count{N: 2}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE n = 1"))
}

// TestAnIDStoredWithoutItsSourceIsKnown checks a message that an earlier version has handled, and that its sender sends again.
func TestAnIDStoredWithoutItsSourceIsKnown(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.provision(1)
	_, err := s.pool.Exec(t.Context(), "INSERT INTO troupe.inbox (consumer_group, message_id, redrive) VALUES ($1, '1', 0), ($1, '2', 1), ('other', '3', 0)",
		p.Group())
	require.NoError(t, err)
	s.send(s.numbered("billing", "1", Count{N: 1}), s.numbered("billing", "2", Count{N: 2}), s.numbered("billing", "3", Count{N: 3}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 3")
	require.Equal(t, 2, s.count("SELECT count(*) FROM done"), "the second had another life, and the third another group")
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE n = 1"))
}

// TestMessagesOfTwoSourcesReachTheirRetryTopic checks two messages of one id, and one without a source, to which the relay adds
// its own. Each keeps its identity there: a message that is sent again meanwhile waits there too, and takes effect once.
func TestMessagesOfTwoSourcesReachTheirRetryTopic(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = 1 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.Fail == "until it waited" && c.Attempt < 3 {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	}, participant.RetryTopics(time.Second))
	s.provision(1)
	s.start(p)
	var sent []envelope.Message
	for n, source := range []string{"billing", "shop", ""} {
		sent = append(sent, s.numbered(source, "1", Count{N: n, Fail: "until it waited"}))
	}
	s.send(sent...)
	topic := s.hop.Retry(time.Second)
	s.waitCount(3, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	s.send(sent...)
	s.waitCount(6, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	require.Equal(t, 6, s.publish(topic, 2))
	s.waitCount(3, "SELECT count(DISTINCT n) FROM done")
	s.send(sent...)
	s.send(s.command("a", Count{N: 100}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 100")
	require.Equal(t, 4, s.count("SELECT count(*) FROM done"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic))
}
