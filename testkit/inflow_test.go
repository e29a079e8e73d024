package testkit_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

type (
	PaymentTaken struct{ Cents int }
	ParcelSent   struct{ Cents int }
)

func sendParcel(_ context.Context, _ pgx.Tx, e participant.Event[PaymentTaken]) (participant.Outcome, error) {
	return participant.Succeed(ParcelSent(e.Body)), nil
}

// TestAServiceOfAFlowIsTestedWithItsDeclaration uses a declaration as the service has it in production, in the flow order.
func TestAServiceOfAFlowIsTestedWithItsDeclaration(t *testing.T) {
	t.Parallel()
	declared, err := flow.Load("testdata/reactions.json")
	require.NoError(t, err)
	declared.Joins, declared.Expectations = nil, nil
	payment := func(s *testkit.Stage) topics.Hop { return topics.MustHop(s.Hop.Flow(), "payment") }
	s := testkit.NewStage(t, testkit.StageConfig{
		Hop: "shipping",
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			f, err := flow.New(flow.Config{Participant: p, Declared: s.InFlow(declared)})
			require.NoError(t, err)
			flow.On(f, payment(s), sendParcel)
		},
	})
	taken := s.Event(payment(s), "o-1", PaymentTaken{999})
	s.Send(taken, taken)
	require.Equal(t, ParcelSent{999}, testkit.Await[ParcelSent](s, taken).Body)
}

// TestInFlowMovesEveryTopicOfTheFlow has a message in each list of a declaration, and one of another flow.
func TestInFlowMovesEveryTopicOfTheFlow(t *testing.T) {
	t.Parallel()
	declared, err := flow.Load("testdata/reactions.json")
	require.NoError(t, err)
	s := testkit.NewStage(t, config())
	before, err := json.Marshal(declared)
	require.NoError(t, err)
	moved, err := json.Marshal(s.InFlow(declared))
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(before), `"order.`, `"`+s.Hop.Flow()+"."), string(moved))
	require.Contains(t, string(moved), `"risk.check.events"`)
	after, err := json.Marshal(declared)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "the declaration itself")
}
