package flow_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestReadMayReturnAPointer checks that Read returns a pointer that is not nil, also for a payload of null. Messages in Protobuf are
// read as pointers, and their codec refuses a pointer to a pointer.
func TestReadMayReturnAPointer(t *testing.T) {
	t.Parallel()
	complete := func(_ context.Context, _ pgx.Tx, j flow.Joined) (participant.Outcome, error) {
		paid, err := flow.Read[*Paid](j)
		if err != nil {
			return participant.Outcome{}, err
		}
		reserved, err := flow.Read[*Reserved](j)
		if err != nil {
			return participant.Outcome{}, err
		}
		return participant.Succeed(Shipped{Cents: paid.Cents, Titles: reserved.Titles}), nil
	}
	s := testkit.NewStage(t, shippingStage(t, func(c *testkit.StageConfig) {
		c.Handlers = func(s *testkit.Stage, p *participant.Participant) {
			flow.OnJoin(bind(t, p, shipping(s.Hop.Flow())), "ready", flow.Ends{Complete: complete, Expired: tooLate})
		}
	}))
	null := event(s, "payment", "o-1", Paid{})
	null.Payload = []byte("null")
	s.Send(null, event(s, "inventory", "o-1", Reserved{Titles: 2}))
	s.Settle()
	require.Equal(t, []string{`success o-1 Shipped {"Cents":0,"Titles":2}`}, said(s))
}
