package testkit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/testkit"
)

func TestAFlowWithAFindingFailsItsTest(t *testing.T) {
	placed := flow.Message{Topic: "order.order.events", Type: "OrderPlaced"}
	verify := func(t testing.TB) {
		testkit.VerifyFlow(t, flow.Declaration{Hop: "order.order", Starts: []flow.Message{placed}})
	}
	failed := failures(t, verify)
	require.Len(t, failed, 1)
	require.Contains(t, failed[0], "no service reacts to OrderPlaced")
	placed.Last = true
	verify(t)
}
