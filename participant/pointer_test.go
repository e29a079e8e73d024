package participant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// Generated Protobuf messages must not be copied, so go vet refuses a handler that gets one by value.
func TestAHandlerMayTakeAPointerToItsBody(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new()
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[*Count]) (participant.Outcome, error) {
		return count(ctx, tx, participant.Command[Count]{Body: *c.Body, Message: c.Message, Attempt: c.Attempt})
	})
	var met atomic.Int64
	participant.OnDeadline(p, "late", func(_ context.Context, _ pgx.Tx, d participant.Due[*Count]) error {
		met.Store(int64(d.Body.N))
		return nil
	})
	s.start(p)
	null := s.command("o-2", Count{})
	null.Payload = []byte("null")
	s.send(s.command("o-1", Count{N: 1}), null)
	for _, e := range s.waitEvents(2) {
		require.Equal(t, envelope.Success, e.Outcome)
		require.Equal(t, "Counted", e.Type)
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return p.Schedule(t.Context(), tx, participant.Deadline{Name: "late", Scope: "a", Key: "a", At: time.Now(), Body: Count{N: 7}})
	}))
	s.send(s.fired(1)...)
	testkit.Wait(t, "the deadline's body", func() (bool, error) { return met.Load() == 7, nil })
}

// TestACallMayTakeAPointerToItsBody checks that both functions of Call get a body that is not nil, also from a payload of null. Codecs of
// Protobuf refuse a pointer to a pointer, so a command in Protobuf could not be read.
func TestACallMayTakeAPointerToItsBody(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new()
	participant.Call(p, func(_ context.Context, c participant.Command[*Count]) (int, error) {
		return c.Body.N + 1, nil
	}, func(_ context.Context, _ pgx.Tx, c participant.Command[*Count], answer int) (participant.Outcome, error) {
		return participant.Succeed(Counted{N: c.Body.N + answer}), nil
	})
	s.start(p)
	null := s.command("o-2", Count{})
	null.Payload = []byte("null")
	s.send(s.command("o-1", Count{N: 3}), null)
	payloads := make(map[string]string)
	for _, e := range s.waitEvents(2) {
		require.Equal(t, envelope.Success, e.Outcome)
		payloads[string(e.Key)] = string(e.Payload)
	}
	require.Len(t, payloads, 2)
	require.JSONEq(t, `{"n":7,"total":0}`, payloads["o-1"])
	require.JSONEq(t, `{"n":1,"total":0}`, payloads["o-2"])
}
