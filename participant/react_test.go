package participant_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// heard returns an event of another hop of the stage's flow.
func (s *stage) heard(key string, body Count) envelope.Message {
	m := s.command(key, body)
	m.Topic, m.Outcome = topics.MustHop(s.hop.Flow(), "order").Events(), envelope.Success
	m.SagaID, m.SagaStep, m.SagaOperation = "saga/1", "step", envelope.Forward
	s.topic(m.Topic)
	return m
}

// TestAReactionIsAnsweredLikeACommand checks that the answer is an event of the hop, once, of no saga; that Done emits
// none; and that no outcome is an error.
func TestAReactionIsAnsweredLikeACommand(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		s := newStage(t)
		p := s.new(onePartition, func(c *participant.Config) { c.Batch = batch })
		var mu sync.Mutex
		runs, seen := map[string]int{}, map[string]int{}
		note := func(of map[string]int, key string) {
			mu.Lock()
			defer mu.Unlock()
			of[key]++
		}
		participant.React(p, topics.MustHop(s.hop.Flow(), "order"), func(_ context.Context, _ pgx.Tx, e participant.Event[Count]) (participant.Outcome, error) {
			note(runs, string(e.Message.Key))
			switch e.Body.Fail {
			case "refuse":
				return participant.Refuse(TooMany{Limit: 1}), nil
			case "done":
				return participant.Done(), nil
			case "nothing":
				return participant.Outcome{}, nil
			}
			return participant.Succeed(Counted{N: e.Body.N}), nil
		})
		p.Observe(topics.MustHop(s.hop.Flow(), "order").Events(), "Count", func(_ context.Context, _ pgx.Tx, m envelope.Message) error {
			note(seen, string(m.Key))
			return nil
		})
		all := []envelope.Message{
			s.heard("a", Count{N: 1}), s.heard("b", Count{Fail: "refuse"}), s.heard("c", Count{Fail: "done"}), s.heard("d", Count{Fail: "nothing"}),
		}
		s.send(all...)
		for _, m := range all[:3] { // the same ones, and under other ids
			s.send(m)
			m.ID = envelope.NewID()
			s.send(m)
		}
		s.start(p)
		events := s.waitEvents(5) // d is a dead letter
		s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'permanent' AND error LIKE '%without an outcome%'")
		outcomes := map[string][]envelope.Outcome{}
		for _, e := range events {
			outcomes[string(e.Key)] = append(outcomes[string(e.Key)], e.Outcome)
			if e.Outcome != envelope.Exhausted {
				require.Contains(t, e.IdempotencyKey, "/payment")
			}
			require.Empty(t, e.SagaID)
		}
		require.Equal(t, map[string][]envelope.Outcome{
			"a": {envelope.Success, envelope.Success}, "b": {envelope.Failure, envelope.Failure}, "d": {envelope.Exhausted},
		}, outcomes)
		// c, which has no event, may be on the other partition.
		waitFor(t, "its observer to see what the handler saw", func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range []string{"a", "b", "c"} {
				if runs[key] == 0 || runs[key] != seen[key] {
					return false
				}
			}
			return true
		})
		s.waitCount(3, "SELECT count(*) FROM troupe.answers")
	}
}

// TestTheSameIdempotencyKeyOfTwoHopsIsTwoQuestions checks two hops that emit the same type with the same key, since each
// answers a command that had it.
func TestTheSameIdempotencyKeyOfTwoHopsIsTwoQuestions(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	other := topics.MustHop(s.hop.Flow(), "stock")
	for i, hop := range []topics.Hop{topics.MustHop(s.hop.Flow(), "order"), other} {
		participant.React(p, hop, func(context.Context, pgx.Tx, participant.Event[Count]) (participant.Outcome, error) {
			return participant.Succeed(Counted{N: i}), nil
		})
	}
	ordered := s.heard("a", Count{})
	reserved := ordered
	reserved.ID, reserved.Topic = envelope.NewID(), other.Events()
	again := reserved
	again.ID = envelope.NewID()
	s.topic(other.Events())
	s.start(p)
	var said []string
	for i, m := range []envelope.Message{ordered, reserved, again} {
		s.send(m)
		said = append(said, string(s.waitEvents(i + 1)[i].Payload))
	}
	require.Equal(t, []string{`{"n":0,"total":0}`, `{"n":1,"total":0}`, `{"n":1,"total":0}`}, said)
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.answers"))
}

// TestObserversWorkBesideHandlersAndWithout checks also that their errors are the run's.
func TestObserversWorkBesideHandlersAndWithout(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	participant.Handle(p, count)
	look := func(ctx context.Context, tx pgx.Tx, m envelope.Message) error {
		if string(m.Key) == "bad" {
			return errors.New("not to my liking")
		}
		return participant.Queue(ctx, tx, "INSERT INTO done (key, n, attempt) VALUES ($1, 99, 0)", string(m.Key)+" was seen")
	}
	order := topics.MustHop(s.hop.Flow(), "order").Events()
	p.Observe(s.hop.Commands(), "Count", look)
	p.Observe(order, "Count", look)
	p.Observe(order, "Count", look)
	s.send(s.command("bad", Count{N: 1}), s.command("a", Count{N: 1}), s.heard("b", Count{N: 1}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error LIKE '%not to my liking%'")
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'a was seen'")
	s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'b was seen'")
	require.Equal(t, 1, s.count("SELECT count(*) FROM counters"))

	p = s.new()
	p.Observe("payments", "Count", look)
	p.Observe(order, "", look)
	p.Observe(topics.MustHop(s.hop.Flow(), "order").Commands(), "Count", look)
	err := p.Run(t.Context())
	require.ErrorContains(t, err, `topic "payments"`)
	require.ErrorContains(t, err, "no type")
	require.ErrorContains(t, err, "want the events of a hop, or "+s.hop.Commands())
}

// TestAContractIsAsked checks that it is called for the handlers before Run begins, and for each entry.
func TestAContractIsAsked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	refused := errors.New("not like this")
	p := s.new()
	participant.Handle(p, count)
	p.Obey(participant.Contract{Handlers: func(all []participant.Registered) error {
		require.Equal(t, []participant.Registered{{Topic: s.hop.Commands(), Type: "Count", Answers: true, Handled: true}}, all)
		return refused
	}})
	require.ErrorIs(t, p.Run(t.Context()), refused)

	p = s.new(onePartition)
	participant.Handle(p, count)
	p.Obey(participant.Contract{Emits: func(ctx context.Context, m envelope.Message) error {
		if cause := envelope.CauseOf(ctx); string(cause.Message.Key) == "bad" {
			return refused
		}
		return nil
	}})
	s.send(s.command("bad", Count{N: 1}), s.command("a", Count{N: 1}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error LIKE '%not like this%'")
	s.waitCount(1, "SELECT count(*) FROM counters")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox WHERE type = 'Counted'"))
}

// TestACommandIsNotDone checks that a command needs an answer.
func TestACommandIsNotDone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		return participant.Done(), nil
	})
	s.send(s.command("a", Count{N: 1}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'permanent' AND error LIKE '%is to be answered%'")
}
