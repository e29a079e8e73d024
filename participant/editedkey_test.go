package participant_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// TestAnObserverGetsTheKeyOfTheAnsweredCommand checks an event that an operator has edited and redriven. A coordinator of sagas, which observes events,
// reads in its idempotency key which call of a step it answers.
func TestAnObserverGetsTheKeyOfTheAnsweredCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	bank := topics.MustHop(s.hop.Flow(), "bank")
	p := s.new(onePartition)
	participant.On(p, bank, func(context.Context, pgx.Tx, participant.Event[Count]) error { return nil })
	keys := make(chan string, 10)
	p.Extension().ObserveEvents(func(envelope.Message) bool { return true }, func(_ context.Context, _ pgx.Tx, m envelope.Message) error {
		keys <- m.IdempotencyKey
		return nil
	})
	s.start(p)
	waitFor(t, "the participant", func() bool { return p.Ready() == nil })
	for _, typ := range []string{"Count", "Charged"} { // with a handler of its type, and without
		m := s.command("a", Count{N: 1})
		m.Topic, m.Type, m.Outcome = bank.Events(), typ, envelope.Failure
		m.IdempotencyKey = "order/o-1/charge/forward/1"
		m.Extra = append(m.Extra,
			envelope.Header{Key: deadletter.HeaderRedrive, Value: []byte("1")},
			envelope.Header{Key: deadletter.HeaderRedriveGroup, Value: []byte(s.hop.String())},
			envelope.Header{Key: deadletter.HeaderRedriveEdit, Value: []byte(deadletter.EditOf(m.Payload))})
		s.send(m)
		require.Equal(t, m.IdempotencyKey, <-keys, typ)
	}
}
