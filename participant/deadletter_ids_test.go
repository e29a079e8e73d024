package participant_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// TestAnAnswerAfterALostDeadLetterHasAnotherID checks the id, since with the same one a consumer would skip the answer as a
// duplicate.
func TestAnAnswerAfterALostDeadLetterHasAnotherID(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func() (participant.Outcome, error){
		"a dead letter": func() (participant.Outcome, error) { return participant.Outcome{}, retry.Permanent(errAsked) },
		"a refusal":     func() (participant.Outcome, error) { return participant.Refuse(TooMany{}), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			var again atomic.Bool
			run := func() (stop func()) {
				p := s.new(onePartition)
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
					if !again.Load() {
						return first()
					}
					return count(ctx, tx, c)
				})
				return s.start(p)
			}
			stop := run()
			s.send(s.command("a", Count{N: 1}))
			lost := s.waitEvents(1)[0]
			stop()
			_, err := s.pool.Exec(t.Context(), `DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark = -1;
				DELETE FROM troupe.dead_letters; DELETE FROM troupe.outbox; `+forget)
			require.NoError(t, err)
			again.Store(true)
			run()
			answer := s.waitEvents(1)[0]
			require.Equal(t, envelope.Success, answer.Outcome)
			require.NotEqual(t, lost.ID, answer.ID)
		})
	}
}

// TestEachExhaustedEventOfACommandIsAnswered checks a command that is redriven and fails again: it has two of them.
func TestEachExhaustedEventOfACommandIsAnswered(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	order := topics.MustHop(s.hop.Flow(), "order")
	s.topic(order.Events())
	p := s.new(onePartition)
	var runs atomic.Int32
	participant.React(p, order, func(context.Context, pgx.Tx, participant.Event[participant.Exhausted]) (participant.Outcome, error) {
		runs.Add(1)
		return participant.Succeed(Counted{N: 1}), nil
	})
	s.start(p)
	for _, letter := range []string{"01", "02", "02"} { // the last is the second one under another id
		m := s.command("a", Count{})
		m.Topic, m.Outcome, m.Type, m.IdempotencyKey = order.Events(), envelope.Exhausted, "troupe.Exhausted", "pay-o-1"
		var err error
		m.Payload, err = json.Marshal(participant.Exhausted{DeadLetterID: letter, Type: "Pay", Handler: "h", Class: "transient", Attempts: 1})
		require.NoError(t, err)
		s.send(m)
	}
	events := s.waitEvents(3)
	require.EqualValues(t, 2, runs.Load())
	require.NotEqual(t, events[0].IdempotencyKey, events[1].IdempotencyKey)
	require.Equal(t, events[1].IdempotencyKey, events[2].IdempotencyKey)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}
