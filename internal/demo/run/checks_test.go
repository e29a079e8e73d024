package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo/orders"
)

// The names of the checks.
const (
	ends      = "every order posted ended exactly once"
	outcomes  = "every order has its expected outcome"
	money     = "charged - refunded = completed orders"
	balances  = "account balances = ledger"
	stock     = "stock taken = completed orders"
	shipments = "shipments = completed orders"
	both      = "no order has a shipment and a refund"
	letters   = "no dead letter without a parked order"
	outboxes  = "every outbox is empty"
	held      = "no message is held"
	unread    = "every message is consumed"
	told      = "every customer was notified once"
	madeOnce  = "every message was made once, its cause is there"
	inOrder   = "every order's messages are in order"
	replay    = "every saga's log gives its state"
	logs      = "every saga's log is without a gap"
	overdue   = "no deadline is left of what ended"
)

// TestEveryCheckFindsWhatItIsFor breaks a good world in one way at a time, and requires exactly the named checks to fail.
func TestEveryCheckFindsWhatItIsFor(t *testing.T) {
	w := newWorld(t)
	w.reset()
	for _, c := range w.facts().checks() {
		require.True(t, c.OK, "%+v", c)
	}
	found := make(map[string]bool)
	for _, c := range []struct {
		what    string
		service string
		sql     string
		change  func(*facts)
		want    map[string]string // checks that fail, and a part of their text
	}{
		{
			what: "an order was lost", service: "order", sql: "DELETE FROM orders WHERE order_id = 'o-refused'",
			want: map[string]string{ends: "3 orders: o-refused is missing", outcomes: "o-refused is nothing, not compensated", told: "o-refused is no order and was notified of its end", replay: "want 3 sagas: 4 sagas"},
		},
		{
			what: "an order has not ended", service: "order",
			sql: `UPDATE troupe.sagas SET status = 'running', ended_at = NULL WHERE key = 'o-refused';
				UPDATE troupe.sagas SET state = jsonb_set(state, '{steps,0,phase}', '"intent"') WHERE key = 'o-refused'`,
			want: map[string]string{
				ends: "o-refused is still payment_intent", outcomes: "o-refused is running, not compensated", told: "o-refused is running and was notified of its end",
				replay: "order/o-refused: its log gives another state",
			},
		},
		{
			what: "an order has no saga", service: "order",
			sql: "DELETE FROM troupe.sagas WHERE key = 'o-parked'",
			want: map[string]string{
				ends: "o-parked is still nothing", outcomes: "o-parked is nothing, not completed", money: "o-parked", stock: "o-parked",
				letters: "o-parked", replay: "want 4 sagas: 3 sagas", logs: "order/o-parked has 4 entries more than its version",
			},
		},
		{
			what: "an order ended twice", service: "order",
			sql: `INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments)
				VALUES ('order/o-done', 5, now(), 'answered', '{"kind": "answered"}', '[{"what": "SagaCompensated"}]')`,
			want: map[string]string{ends: "o-done ended 2 times", logs: "order/o-done has 1 entries more than its version"},
		},
		{
			what: "a decision was not logged", service: "order", sql: "DELETE FROM troupe.saga_events WHERE saga_id = 'order/o-undone' AND version = 3",
			want: map[string]string{replay: "order/o-undone: its log gives another state", logs: "15 decisions: order/o-undone lacks entry 3"},
		},
		{
			what: "a saga's state was changed by hand", service: "order",
			sql:  `UPDATE troupe.sagas SET state = jsonb_set(state, '{data,shipment_id}', '"another"') WHERE key = 'o-done'`,
			want: map[string]string{replay: "3 sagas: order/o-done: its log gives another state"},
		},
		{
			what: "a saga's definition is away", change: func(f *facts) { f.definitions = nil },
			want: map[string]string{replay: "0 sagas: order/o-done: its definition"},
		},
		{
			what: "a deadline was left behind", service: "order",
			sql: `INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, type, headers)
				VALUES ('g', 'order/o-done', 'saga', gen_random_uuid(), now(), 't', '{}'), ('g', 'order/o-parked', 'saga', gen_random_uuid(), now(), 't', '{}')`,
			want: map[string]string{overdue: "1: order/o-done"},
		},
		{
			what: "an order came from nowhere", change: func(f *facts) { f.posted = f.posted[:3] },
			want: map[string]string{ends: "o-parked was never posted"},
		},
		{
			what: "an order was changed on the way", service: "order", sql: "UPDATE orders SET customer_id = 'c-9' WHERE order_id = 'o-refused'",
			want: map[string]string{ends: "o-refused is not as it was posted"},
		},
		{
			what: "an order was refused that was not chosen", change: func(f *facts) { f.fail = nil },
			want: map[string]string{outcomes: "want 3 completed, 0 compensated: 1 completed, 2 compensated: o-refused is compensated, not completed; o-undone is compensated, not completed"},
		},
		{
			what: "a charge was lost", service: "payment", sql: "DELETE FROM ledger WHERE order_id = 'o-done'",
			want: map[string]string{money: "1.25: o-done is completed and has 0.00 of 10.00", balances: "customer c-1 owes 10.00, by the ledger 0.00"},
		},
		{
			what: "an order was charged twice", service: "payment",
			sql: `INSERT INTO ledger (idempotency_key, order_id, kind, customer_id, payment_id, amount_cents) VALUES ('again', 'o-done', 'charge', 'c-1', 'p', 1000);
				UPDATE accounts SET balance_cents = 2000 WHERE customer_id = 'c-1'`,
			want: map[string]string{money: "21.25: o-done is completed and has 20.00 of 10.00"},
		},
		{
			what: "a refund was lost", service: "payment",
			sql:  "DELETE FROM ledger WHERE kind = 'refund'; UPDATE accounts SET balance_cents = 375 WHERE customer_id = 'c-2'",
			want: map[string]string{money: "13.75: o-undone is compensated and has 2.50 of 2.50"},
		},
		{
			what: "a parked order holds more than its price", service: "payment",
			sql:  "UPDATE ledger SET amount_cents = 126 WHERE order_id = 'o-parked'; UPDATE accounts SET balance_cents = 126 WHERE customer_id = 'c-2'",
			want: map[string]string{money: "o-parked is parked and has 1.26 of 1.25"},
		},
		{
			what: "two errors that cancel each other out", service: "payment",
			sql: `UPDATE ledger SET amount_cents = 1001 WHERE order_id = 'o-done'; UPDATE ledger SET amount_cents = 124 WHERE order_id = 'o-parked';
				UPDATE accounts SET balance_cents = 1001 WHERE customer_id = 'c-1'; UPDATE accounts SET balance_cents = 124 WHERE customer_id = 'c-2'`,
			want: map[string]string{money: "11.25: o-done is completed and has 10.01 of 10.00; o-parked is parked and has 1.24 of 1.25"},
		},
		{
			what: "money of no order", service: "payment",
			sql:  "INSERT INTO ledger (idempotency_key, order_id, kind, payment_id, amount_cents) VALUES ('x', 'o-none', 'charge', 'p', 1)",
			want: map[string]string{money: "o-none is no order and has 0.01", balances: "11.25"},
		},
		{
			what: "a balance was added to twice", service: "payment", sql: "UPDATE accounts SET balance_cents = 2000 WHERE customer_id = 'c-1'",
			want: map[string]string{balances: "21.25: customer c-1 owes 20.00, by the ledger 10.00"},
		},
		{
			what: "stock was taken twice", service: "inventory", sql: "UPDATE stock SET available = 96 WHERE title = 7",
			want: map[string]string{stock: "8 pieces: title 7: 4 taken, 2 ordered"},
		},
		{
			what: "stock was not put back", service: "inventory",
			sql:  "UPDATE stock SET available = 93 WHERE title = 8; UPDATE reservations SET released_at = NULL WHERE order_id = 'o-undone'",
			want: map[string]string{stock: "o-undone is compensated and holds 3 of 3"},
		},
		{
			what: "stock of another title was taken", service: "inventory",
			sql:  "UPDATE stock SET available = 98 WHERE title = 9; UPDATE stock SET available = 100 WHERE title = 7; UPDATE reservations SET title = 9 WHERE order_id = 'o-done'",
			want: map[string]string{stock: "o-done did not order title 9; title 7: 0 taken, 2 ordered; title 9: 2 taken, 0 ordered"},
		},
		{
			what: "a parcel was never sent", service: "shipping", sql: "DELETE FROM shipments",
			want: map[string]string{shipments: "0: o-done is completed and was sent 0 times"},
		},
		{
			what: "a parcel was sent twice", service: "shipping", sql: "INSERT INTO shipments SELECT * FROM shipments",
			want: map[string]string{shipments: "2: o-done is completed and was sent 2 times"},
		},
		{
			what: "a parcel was shipped for a refused order", service: "shipping", sql: "UPDATE shipments SET order_id = 'o-refused'",
			want: map[string]string{shipments: "o-done is completed and was sent 0 times; o-refused is compensated and was sent 1 times"},
		},
		{
			what: "a parcel of no order", service: "shipping", sql: "UPDATE shipments SET order_id = 'o-none'",
			want: map[string]string{shipments: "o-none is no order and was sent"},
		},
		{
			what: "a customer has both the parcel and the money", service: "shipping",
			sql:  "INSERT INTO shipments (shipment_id, order_id, idempotency_key, customer_id, title, quantity) VALUES ('s', 'o-undone', 'i', 'c-2', 8, 3)",
			want: map[string]string{both: "1: o-undone", shipments: "o-undone is compensated and was sent 1 times"},
		},
		{
			what: "a dead letter of an order that completed", service: "shipping", sql: "UPDATE troupe.dead_letters SET key = 'o-done'",
			want: map[string]string{letters: "1: troupe.order.ShipOrder of o-done: transient: no driver"},
		},
		{
			what: "a message has not left", service: "inventory", sql: "INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T')",
			want: map[string]string{outboxes: "1: inventory: 1"},
		},
		{
			what: "a message waits behind its key", service: "order",
			sql: `INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, headers, message_time, max_attempts)
				VALUES ('g', gen_random_uuid(), 0, 0, 't', '', '', now(), 8)`,
			want: map[string]string{held: "1: order: 1"},
		},
		{
			what: "a group has not read to the end", change: func(f *facts) { f.unread["shipping"] = 3 },
			want: map[string]string{unread: "3 left by 4 groups: shipping: 3"},
		},
		{
			what: "a group never was", change: func(f *facts) { delete(f.unread, "shipping") },
			want: map[string]string{unread: "0 left by 3 groups"},
		},
		{
			what: "a customer was never told", change: func(f *facts) { f.messages = append(f.messages[:2:2], f.messages[3:]...) },
			want: map[string]string{told: "2: o-done is completed and was notified 0 times"},
		},
		{
			what: "a customer was told twice", change: func(f *facts) {
				again := f.messages[2]
				again.id = "3b"
				f.messages = append(f.messages, again)
			},
			want: map[string]string{told: "4: o-done is completed and was notified 2 times", madeOnce: "10 messages: OrderCompleted of o-done was made twice: 3, 3b"},
		},
		{
			what: "a customer was told the wrong end", change: func(f *facts) { f.messages[2].typ = "OrderCancelled" },
			want: map[string]string{told: "o-done is completed and was notified by OrderCancelled"},
		},
		{
			what: "a cause is lost", change: func(f *facts) { f.messages = f.messages[1:] },
			want: map[string]string{madeOnce: "the cause of PaymentCharged of o-done is missing: 1"},
		},
		{
			what: "a message without an id", change: func(f *facts) { f.messages[0].id = "" },
			want: map[string]string{madeOnce: "a message on f.payment.commands without an id; the cause"},
		},
		{
			what: "a message overtook another", change: func(f *facts) { f.messages[6], f.messages[7] = f.messages[7], f.messages[6] },
			want: map[string]string{inOrder: "1 out of order: ChargePayment of o-undone came late on f.payment.commands"},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			w.t = t
			w.reset()
			if c.sql != "" {
				w.exec(c.service, c.sql)
			}
			f := w.facts()
			if c.change != nil {
				c.change(f)
			}
			for _, check := range f.checks() {
				part, fails := c.want[check.Name]
				require.Equal(t, !fails, check.OK, "%+v", check)
				if fails {
					require.Contains(t, "want "+check.Want+": "+check.Got, part)
					found[check.Name] = true
				}
			}
		})
	}
	w.t = t
	w.reset()
	for _, c := range w.facts().checks() {
		require.True(t, found[c.Name], "nothing made the check fail: %s", c.Name)
	}
}

func TestAnOrderAboveTheLimitsMayBeRefused(t *testing.T) {
	w := newWorld(t)
	w.reset()
	for what, sql := range map[string][2]string{
		"credit limit": {"payment", "UPDATE accounts SET limit_cents = 1499 WHERE customer_id = 'c-1'"},
		"out of stock": {"inventory", "UPDATE stock SET initial = 2, available = 0 WHERE title = 7"},
	} {
		w.reset()
		w.exec(sql[0], sql[1])
		f := w.facts()
		f.fail = map[string]float64{"shipping": 0.3} // no share chooses o-refused now
		require.True(t, newCheck(outcomes, f.checkOutcomes).OK, what)
	}
	w.reset()
	f := w.facts()
	f.fail = map[string]float64{"shipping": 0.3}
	require.False(t, newCheck(outcomes, f.checkOutcomes).OK)
}

func TestChecksOnProcessesAndChaosCanFail(t *testing.T) {
	require.True(t, checkFaults(nil).OK)
	require.Equal(t, "1: payment: exit status 1", checkFaults([]string{"payment: exit status 1"}).Got)
	require.False(t, checkFaults([]string{"payment: exit status 1"}).OK)
	require.True(t, checkStopped(8, nil).OK)
	require.Equal(t, Check{
		Name: "every process stopped cleanly", Want: "8 of 8", Got: "7 of 8: order: signal: killed",
	}, checkStopped(8, []string{"order: signal: killed"}))
	require.True(t, (&Chaos{1, 1, 1, 1}).check().OK)
	require.Equal(t, Check{
		Name: "every kind of fault happened", Want: "4 of 4", Got: "2 of 4: no message was sent twice; no relay was killed",
	}, (&Chaos{0, 1, 1, 0}).check())
}

func TestLongComplaintsAreCutShort(t *testing.T) {
	f := &facts{}
	for range 10 {
		f.posted = append(f.posted, orders.Order{ID: "o"})
	}
	require.Equal(t, "0 orders: o is missing; o is missing; o is missing; and 7 more", newCheck(ends, f.checkEnds).Got)
}
