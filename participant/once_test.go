package participant_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestDuplicatesChangeNothing delivers everything under the same offsets again, and under others.
func TestDuplicatesChangeNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	commands := s.commands(3, 10)
	p := s.new()
	participant.Handle(p, count)
	stop := s.start(p)
	s.send(commands...)
	s.expectAll(3, 10)
	stop()

	s.rewind()
	s.send(commands...)
	p = s.new()
	participant.Handle(p, count)
	s.start(p)
	last := s.command("last", Count{N: 1})
	s.send(last)
	s.send(s.command("last", Count{N: 2}), s.command("k-0", Count{N: 11}), s.command("k-1", Count{N: 11}), s.command("k-2", Count{N: 11}))
	s.waitCount(35, "SELECT count(*) FROM done")
	require.Equal(t, 3, s.count("SELECT count(*) FROM counters WHERE total = 11"))
	require.Equal(t, 35, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events()), "duplicates are silent")
}

// TestAMessageWithoutAnIDIsKnownByItsPlace checks that the same bytes twice are two messages, the same offset twice is one.
func TestAMessageWithoutAnIDIsKnownByItsPlace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.command("a", Count{N: 1})
	m.ID, m.CorrelationID, m.IdempotencyKey = "", "", ""
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.provision(1)
	stop := s.start(p)
	s.send(m, m)
	events := s.waitEvents(2)
	require.NotEqual(t, events[0].ID, events[1].ID)
	require.NotEmpty(t, events[0].CausationID)
	require.Equal(t, events[0].CausationID, events[0].CorrelationID)
	stop()
	s.rewind()
	p = s.new(onePartition)
	participant.Handle(p, count)
	s.start(p)
	s.send(m)
	s.waitEvents(3)
}

// TestARedrivenMessageIsNoDuplicate checks a message with its redrive count.
func TestARedrivenMessageIsNoDuplicate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.command("a", Count{N: 1, Fail: "permanent"})
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.provision(1)
	s.start(p)
	again := m
	again.Payload = []byte(`{"n":1}`)
	again.Extra = []envelope.Header{{Key: deadletter.HeaderRedrive, Value: []byte("1")}}
	s.send(m, m, again, again)
	events := s.waitEvents(2)
	require.Equal(t, []envelope.Outcome{envelope.Exhausted, envelope.Success}, []envelope.Outcome{events[0].Outcome, events[1].Outcome})
	require.NotEqual(t, events[0].ID, events[1].ID)

	another := again
	another.Extra = []envelope.Header{
		{Key: deadletter.HeaderRedrive, Value: []byte("2")}, {Key: deadletter.HeaderRedriveGroup, Value: []byte("another")},
	}
	s.send(another, s.command("a", Count{N: 2}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE n = 1"), "redriven for another group, it has its first identity")
}

// TestUpsertsOfARepeatedMessageLeaveOneRow checks it without the inbox, whose rows are deleted in time.
func TestUpsertsOfARepeatedMessageLeaveOneRow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "INSERT INTO counters (key, total) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET total = EXCLUDED.total",
			string(c.Message.Key), c.Body.N)
		return participant.Succeed(Counted{N: c.Body.N}), err
	})
	s.provision(1)
	s.start(p)
	m := s.command("a", Count{N: 7})
	s.send(m)
	first := s.waitEvents(1)[0]
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.send(m)
	second := s.waitEvents(2)[1]
	require.Equal(t, 1, s.count("SELECT count(*) FROM counters WHERE total = 7"))
	require.Equal(t, first.Payload, second.Payload)
}

// TestARepeatedRunEmitsTheSameIDs checks that consumers downstream see one message.
func TestARepeatedRunEmitsTheSameIDs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	next := topics.MustHop(s.hop.Flow(), "inventory")
	var mu sync.Mutex
	var ids []string
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		err := p.Outbox().Write(ctx, tx, entry(next.Commands(), Counted{N: 5}))
		if err != nil {
			return participant.Outcome{}, err
		}
		var id string
		if err := tx.QueryRow(ctx, "SELECT id FROM troupe.outbox WHERE topic = $1", next.Commands()).Scan(&id); err != nil {
			return participant.Outcome{}, err
		}
		mu.Lock()
		defer mu.Unlock()
		if ids = append(ids, id); len(ids) < 4 {
			return participant.Outcome{}, errAsked
		}
		return participant.Succeed(Counted{}), nil
	})
	s.provision(1)
	s.start(p)
	m := s.command("a", Count{})
	s.send(m)
	s.waitEvents(1)
	mu.Lock()
	defer mu.Unlock()
	require.GreaterOrEqual(t, len(ids), 4, "more where one was broken off")
	require.Equal(t, slices.Repeat(ids[:1], len(ids)), ids)
	command := s.entries(next.Commands())[0]
	require.Equal(t, ids[0], command.ID)
	require.Equal(t, m.ID, command.CausationID)
	require.Equal(t, m.CorrelationID, command.CorrelationID)
}

// TestATopicMadeAnewStartsAnew checks that offsets of the old topic hide no message of the new one, neither from a member that
// was there nor from a new one.
func TestATopicMadeAnewStartsAnew(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.provision(1)
	stop := s.start(p)
	without := s.command("a", Count{N: 1})
	without.ID, without.IdempotencyKey = "", ""
	s.send(without, s.command("a", Count{N: 2}), s.command("a", Count{N: 3}))
	s.waitCount(3, "SELECT count(*) FROM done")
	admin := kadm.NewClient(s.client)
	anew := func() {
		before := s.waitTopic(s.hop.Commands())
		_, err := admin.DeleteTopic(t.Context(), s.hop.Commands())
		require.NoError(t, err)
		s.client.PurgeTopicsFromClient(s.hop.Commands())
		waitFor(t, "the topic created again", func() bool { // a member that misses the topic may create it
			s.provision(1)
			return s.waitTopic(s.hop.Commands()) != before
		})
	}
	anew()
	s.send(without)
	s.waitCount(4, "SELECT count(*) FROM done")
	stop()

	// Offsets that outlive their topic, as on a broker whose commits have no topic ids.
	old, err := admin.FetchOffsets(t.Context(), s.hop.String())
	require.NoError(t, err)
	anew()
	s.send(without)
	s.commit(s.hop.String(), old.Offsets())
	p = s.new(onePartition)
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(5, "SELECT count(*) FROM done")
}

// waitTopic waits until the broker lists a topic.
func (s *stage) waitTopic(name string) (id [16]byte) {
	s.t.Helper()
	client, err := kafka.NewClient(s.brokers)
	require.NoError(s.t, err)
	defer client.Close()
	testkit.Wait(s.t, "topic "+name, func() (bool, error) {
		ids, err := kafka.TopicIDs(s.t.Context(), client, name)
		id = ids[name]
		return len(ids) == 1, err
	})
	return id
}
