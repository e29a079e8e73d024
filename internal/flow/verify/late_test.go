package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/verify"
)

// A join of the raised event and of the late one is complete only in a run in which the expected event comes too late.
func TestAnExpectedEventMayComeLate(t *testing.T) {
	t.Parallel()
	event := func(hop, typ string) flow.Message {
		return flow.Message{Topic: "shop." + hop + ".events", Type: typ}
	}
	last := func(m flow.Message) flow.Message {
		m.Last = true
		return m
	}
	placed, shipped := event("order", "Placed"), event("shipping", "Shipped")
	missing, late := event("order", "ShipmentMissing"), event("order", "ShippedLate")
	found := verify.Flow([]flow.Declaration{
		{
			Hop: "shop.order", Starts: []flow.Message{placed},
			Expectations: []flow.Expectation{{
				Name: "shipped", After: placed, Expect: []flow.Message{shipped}, Within: "1h", Raise: missing, Late: []flow.Message{late},
			}},
		},
		{Hop: "shop.shipping", Reactions: []flow.Reaction{{On: placed, Success: []flow.Message{last(shipped)}, Irreversible: "it is on its way"}}},
		{
			Hop: "shop.desk",
			Joins: []flow.Join{{
				Name: "apology", Await: []flow.Message{missing, late}, Within: "24h",
				Success: []flow.Message{last(event("desk", "Apologised"))}, Expired: []flow.Message{last(event("desk", "Lost"))},
			}},
		},
	})
	require.Empty(t, found)
}
