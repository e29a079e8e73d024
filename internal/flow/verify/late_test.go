package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/internal/flow/verify"
)

// A join of the raised event and of the late one is complete only in a run in which the expected event comes too late.
func TestAnExpectedEventMayComeLate(t *testing.T) {
	t.Parallel()
	event := func(hop, typ string) reactions.Message {
		return reactions.Message{Topic: "shop." + hop + ".events", Type: typ}
	}
	last := func(m reactions.Message) reactions.Message {
		m.Last = true
		return m
	}
	placed, shipped := event("order", "Placed"), event("shipping", "Shipped")
	missing, late := event("order", "ShipmentMissing"), event("order", "ShippedLate")
	found := verify.Flow([]reactions.Service{
		{
			Hop: "shop.order", Starts: []reactions.Message{placed},
			Expectations: []reactions.Expectation{{
				Name: "shipped", After: placed, Expect: []reactions.Message{shipped}, Within: "1h", Raise: missing, Late: []reactions.Message{late},
			}},
		},
		{Hop: "shop.shipping", Reactions: []reactions.Reaction{{On: placed, Success: []reactions.Message{last(shipped)}, Irreversible: "it is on its way"}}},
		{
			Hop: "shop.desk",
			Joins: []reactions.Join{{
				Name: "apology", Await: []reactions.Message{missing, late}, Within: "24h",
				Success: []reactions.Message{last(event("desk", "Apologised"))}, Expired: []reactions.Message{last(event("desk", "Lost"))},
			}},
		},
	})
	require.Empty(t, found)
}
