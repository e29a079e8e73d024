package run

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo"
)

// choreographed returns the facts of a good run without a coordinator: an order of each final status, as in goodOrders.
func (w *world) choreographed() *facts {
	w.t.Helper()
	schema, err := os.ReadFile("../order/choreography.sql")
	require.NoError(w.t, err)
	w.exec("order", string(schema))
	w.exec("order", `
		ALTER TABLE order_ends DROP CONSTRAINT IF EXISTS order_ends_times_check;
		DELETE FROM order_ends;
		DELETE FROM troupe.expectations;
		INSERT INTO order_ends (order_id, status, reason, times, at) VALUES
		  ('o-done', 'completed', NULL, 1, '2000-01-01 00:00:01'), ('o-refused', 'compensated', 'no', 1, '2000-01-01 00:00:03'),
		  ('o-undone', 'compensated', 'no', 1, '2000-01-01 00:00:05'), ('o-parked', 'parked', 'no driver', 0, '2000-01-01 00:00:07')`)
	return w.choreographedFacts()
}

func (w *world) choreographedFacts() *facts {
	w.t.Helper()
	declared, err := declarations("f")
	require.NoError(w.t, err)
	f := &facts{
		style: demo.Choreography, declared: declared, posted: slices.Clone(goodOrders),
		fail: demo.Fail{"payment": 0.3, "shipping": 0.3}, seed: goodSeed,
		unread: map[string]int64{"order": 0, "payment": 0, "inventory": 0, "shipping": 0},
	}
	say := func(key, id, cause, hop, typ string) {
		at := time.Date(2000, 1, 1, 0, 0, len(f.messages), 0, time.UTC)
		f.messages = append(f.messages, message{topic: "f." + hop + ".events", key: key, id: id, typ: typ, cause: cause, written: at})
	}
	say("o-done", "a1", "", "order", "OrderPlaced")
	say("o-done", "a2", "a1", "payment", "PaymentCharged")
	say("o-done", "a3", "a2", "inventory", "StockReserved")
	say("o-done", "a4", "a3", "shipping", "OrderShipped")
	say("o-done", "a5", "a4", "order", "OrderCompleted")
	say("o-refused", "b1", "", "order", "OrderPlaced")
	say("o-refused", "b2", "b1", "payment", "PaymentRefused")
	say("o-refused", "b3", "b2", "order", "OrderCancelled")
	say("o-undone", "c1", "", "order", "OrderPlaced")
	say("o-undone", "c2", "c1", "payment", "PaymentCharged")
	say("o-undone", "c3", "c2", "inventory", "StockReserved")
	say("o-undone", "c4", "c3", "shipping", "ShippingRefused")
	say("o-undone", "c5", "c4", "inventory", "StockReleased")
	say("o-undone", "c6", "c5", "payment", "PaymentRefunded")
	say("o-undone", "c7", "c6", "order", "OrderCancelled")
	say("o-parked", "d1", "", "order", "OrderPlaced")
	say("o-parked", "d2", "d1", "payment", "PaymentCharged")
	say("o-parked", "d3", "d2", "inventory", "StockReserved")
	say("o-parked", "d4", "d3", "shipping", exhausted)
	say("o-parked", "d4", "d3", "shipping", exhausted) // a copy
	require.NoError(w.t, f.readRows(w.t.Context(), w.pools))
	return f
}

// TestEveryCheckOfAChoreographyFindsWhatItIsFor is TestEveryCheckFindsWhatItIsFor for the checks that differ in a choreography.
func TestEveryCheckOfAChoreographyFindsWhatItIsFor(t *testing.T) {
	const (
		declared = "every event follows from a declared reaction"
		answered = "every reaction answered once"
		awaited  = "no order that ended waits for an event"
	)
	w := newWorld(t)
	w.reset()
	f := w.choreographed()
	for _, c := range f.checks() {
		require.True(t, c.OK, "%+v", c)
	}
	c, err := readCounts(t.Context(), w.pools["order"], countsSQL[demo.Choreography])
	require.NoError(t, err)
	require.Equal(t, counts{Completed: 1, Compensated: 2, Parked: 1, Decisions: 4}, c)
	var r Result
	r.summarize(f)
	require.Equal(t, Result{
		Orders: 4, Completed: 1, Compensated: 2, Parked: 1, OrdersPerSecond: 0.6, MessagesPerOrder: 4.8,
		LatencyMS: Latency{P50: 2000, P95: 3000, P99: 3000}, ParkedOrders: []ParkedOrder{{"o-parked", "parked"}},
	}, r)
	for _, c := range []struct {
		what, sql string // sql runs in the order service's database
		change    func(*facts)
		want      map[string]string
	}{
		{
			what: "an order ended twice", sql: "UPDATE order_ends SET times = 2 WHERE order_id = 'o-done'",
			want: map[string]string{ends: "o-done ended 2 times"},
		},
		{
			what: "a parked order had ended", sql: "UPDATE order_ends SET times = 1 WHERE order_id = 'o-parked'",
			want: map[string]string{ends: "o-parked ended 2 times"},
		},
		{
			what: "an order has not ended", sql: "DELETE FROM order_ends WHERE order_id = 'o-refused'",
			want: map[string]string{
				ends: "o-refused is still placed", outcomes: "o-refused is running, not compensated", told: "o-refused is running and was notified of its end",
			},
		},
		{
			what: "an end is still expected", sql: `INSERT INTO troupe.expectations (consumer_group, name, key, after_at, due_at, alert_id)
				SELECT 'f.order', 'order-ends', key, now(), now(), troupe.uuidv7() FROM unnest(ARRAY['o-done', 'o-parked']) AS key`,
			want: map[string]string{awaited: "1: o-done"},
		},
		{
			what: "a deadline was left behind", sql: `INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, type, headers)
				VALUES ('g', 'o-done', 'expect.order-ends', gen_random_uuid(), now(), 't', '{}')`,
			want: map[string]string{awaited: "1: o-done"},
		},
		{
			what: "a hop sent an undeclared event", change: func(f *facts) { f.messages[3].typ = "StockReleased" },
			want: map[string]string{
				declared: "17 events: no service declares to send OrderCompleted of o-done after \"StockReleased\"; no service declares to send StockReleased of o-done",
			},
		},
		{
			what: "a hop did not answer", change: func(f *facts) { f.messages[4].cause = "a1" },
			want: map[string]string{
				answered: "f.order answered OrderShipped of o-done 0 times", declared: "no service declares to send OrderCompleted of o-done after \"OrderPlaced\"",
			},
		},
		{
			what: "a hop answered twice", change: func(f *facts) {
				again := f.messages[6]
				again.id = "b4"
				f.messages = append(f.messages, again)
			},
			want: map[string]string{
				answered: "f.payment answered OrderPlaced of o-refused 2 times", madeOnce: "PaymentRefused of o-refused was made twice: b2, b4",
			},
		},
		{
			what: "a flow began with an answer", change: func(f *facts) { f.messages[0].typ = "OrderCompleted" },
			want: map[string]string{
				declared: "no service declares to send OrderCompleted of o-done after \"\"; no service declares to send PaymentCharged of o-done after \"OrderCompleted\"",
				told:     "o-done is completed and was notified 2 times", madeOnce: "OrderCompleted of o-done was made twice",
			},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			w.t = t
			w.reset()
			f := w.choreographed()
			if c.sql != "" {
				w.exec("order", c.sql)
				f = w.choreographedFacts()
			}
			if c.change != nil {
				c.change(f)
			}
			for _, check := range f.checks() {
				part, fails := c.want[check.Name]
				require.Equal(t, !fails, check.OK, "%+v", check)
				if fails {
					require.Contains(t, "want "+check.Want+": "+check.Got, part)
				}
			}
		})
	}
}
