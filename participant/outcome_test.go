package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

func TestAnAnswerIsAnEventOfTheCommandsKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new()
	participant.Handle(p, count)
	s.start(p)
	command := s.command("o-1", Count{N: 1})
	command.SagaID, command.SagaStep, command.SagaOperation = "s", "payment", envelope.Forward
	refused := s.command("o-1", Count{N: 2, Fail: "refuse"})
	s.send(command, refused)

	events := s.waitEvents(2)
	require.Equal(t, envelope.Success, events[0].Outcome)
	require.Equal(t, "Counted", events[0].Type)
	require.JSONEq(t, `{"n":1,"total":1}`, string(events[0].Payload))
	require.Equal(t, "o-1", string(events[0].Key))
	require.Equal(t, "payment", events[0].Source)
	require.Equal(t, command.IdempotencyKey, events[0].IdempotencyKey)
	require.Equal(t, "flow-o-1", events[0].CorrelationID)
	require.Equal(t, command.ID, events[0].CausationID)
	require.Equal(t, []string{"s", "payment", envelope.Forward}, []string{events[0].SagaID, events[0].SagaStep, events[0].SagaOperation})
	require.Equal(t, envelope.Failure, events[1].Outcome)
	require.Equal(t, "TooMany", events[1].Type)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
}
