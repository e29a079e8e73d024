package stage

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
)

// said is a message of a flow without an orchestrator.
type said struct {
	key, hop, typ string
	cause         string // the type that it follows from
	outcome       int    // 1: success, 2: failure
}

// Watched writes the rows of a watcher for flows of shop: w-1 completed, w-2 without an answer of payment, w-3 refused, w-4
// with a message that no service declares, w-5 under way.
func (s *Stage) Watched() {
	s.t.Helper()
	event := func(hop, typ string) flow.Message {
		return flow.Message{Topic: "shop." + hop + ".events", Type: typ}
	}
	shipped := event("shipping", "Shipped")
	shipped.Last = true
	declared, err := json.Marshal([]flow.Declaration{
		{Hop: "shop.order", Starts: []flow.Message{event("order", "Placed")}},
		{Hop: "shop.payment", Reactions: []flow.Reaction{
			{On: event("order", "Placed"), Success: []flow.Message{event("payment", "Paid")}, Failure: []flow.Message{event("payment", "Declined")}},
		}},
		{Hop: "shop.inventory", Reactions: []flow.Reaction{{On: event("order", "Placed"), Success: []flow.Message{event("inventory", "Reserved")}}}},
		{Hop: "shop.shipping", Reactions: []flow.Reaction{{On: event("payment", "Paid"), Success: []flow.Message{shipped}}}},
	})
	require.NoError(s.t, err)
	run := func(sql string, args ...any) {
		s.t.Helper()
		_, err := s.Pool.Exec(s.t.Context(), sql, args...)
		require.NoError(s.t, err)
	}
	number := func(name string) (n int) {
		run("INSERT INTO troupe.watch_names (name) VALUES ($1) ON CONFLICT DO NOTHING", name)
		require.NoError(s.t, s.Pool.QueryRow(s.t.Context(), "SELECT id FROM troupe.watch_names WHERE name = $1", name).Scan(&n))
		return n
	}
	flow := number("shop")
	run("INSERT INTO troupe.watch_flows (flow, declared, answer, seen_at) VALUES ($1, $2, '1 hour', now())", flow, string(declared))
	id := func(key, typ string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(key+" "+typ)) }
	begun := time.Now().Add(-2 * time.Hour)
	for i, m := range []said{
		{"w-1", "order", "Placed", "", 1}, {"w-1", "payment", "Paid", "Placed", 1}, {"w-1", "inventory", "Reserved", "Placed", 1},
		{"w-1", "shipping", "Shipped", "Paid", 1},
		{"w-2", "order", "Placed", "", 1}, {"w-2", "inventory", "Reserved", "Placed", 1},
		{"w-3", "order", "Placed", "", 1}, {"w-3", "payment", "Declined", "Placed", 2}, {"w-3", "inventory", "Reserved", "Placed", 1},
		{"w-4", "order", "Placed", "", 1}, {"w-4", "payment", "Paid", "Placed", 1}, {"w-4", "inventory", "Reserved", "Placed", 1},
		{"w-4", "shipping", "Shipped", "Paid", 1}, {"w-4", "shipping", "Insured", "Shipped", 0},
		{"w-5", "order", "Placed", "", 1},
	} {
		at := begun.Add(time.Duration(i) * 150 * time.Millisecond)
		if m.key == "w-5" {
			at = time.Now() // it is under way for an hour, which is longer than any test
		}
		var cause *uuid.UUID
		if m.cause != "" {
			of := id(m.key, m.cause)
			cause = &of
		}
		topic, typ := number("shop."+m.hop+".events"), number(m.typ)
		run(`INSERT INTO troupe.watch_messages (slot, flow, topic, partition, "offset", at, written_at, type, outcome, id, correlation, causation, key)
			VALUES (0, $1, $2, 0, $3, $4, $4, $5, $6, $7, $8, $9, $10)`, flow, topic, i, at, typ, m.outcome, id(m.key, m.typ), id(m.key, ""), cause, m.key)
		switch m.key + m.typ {
		case "w-2Placed":
			run(`INSERT INTO troupe.watch_findings (slot, flow, rule, about, topic, type, correlation, key, at, found_at)
				VALUES (0, $1, 0, $2, $3, $4, $5, $6, $7, now())`, flow, id(m.key, m.typ), topic, typ, id(m.key, ""), m.key, at)
		case "w-4Insured":
			run("INSERT INTO troupe.watch_unexpected (flow, topic, type, messages, first_at, last_at, correlation) VALUES ($1, $2, $3, 1, $4, $4, $5)",
				flow, topic, typ, at, id(m.key, ""))
		}
	}
}
