package flow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo"
)

// TestOrderFlow runs all parts on one system, each with orders and customers of its own. The last part sends every message of the
// others again.
func TestOrderFlow(t *testing.T) {
	f := startFlow(t, demo.Orchestration)
	f.exec(t, "payment", "INSERT INTO accounts (customer_id, limit_cents) VALUES ('c-poor', 2000)")
	f.exec(t, "shipping", "INSERT INTO undeliverable VALUES ('c-far', 'no road')")
	messages := f.onlooker()

	t.Run("A14 payment, inventory, shipping, completed; A15 the customer hears of it", func(t *testing.T) {
		f.post(t, "o-good", nil)
		o := f.await(t, "o-good", "completed")
		require.Equal(t, []string{
			"payment StepStarted", "payment StepCompleted", "inventory StepStarted", "inventory StepCompleted", "shipping StepStarted",
			"shipping StepCompleted",
		}, o.moments())
		require.Equal(t, int64(2933), ask[int64](t, f, "payment", "SELECT amount_cents FROM ledger WHERE order_id = 'o-good' AND kind = 'charge'"))
		require.Equal(t, int32(2), ask[int32](t, f, "inventory", "SELECT quantity FROM reservations WHERE reservation_id = $1 AND released_at IS NULL", o.ReservationID))
		require.Equal(t, "o-good", ask[string](t, f, "shipping", "SELECT order_id FROM shipments WHERE shipment_id = $1", o.ShipmentID))

		all := awaitMessages(t, messages, "o-good", 7)
		told := all[slices.IndexFunc(all, func(m envelope.Message) bool { return m.Topic == f.name+".order.events" })]
		require.Equal(t, "troupe.order.OrderCompleted", told.Type)
		require.Equal(t, envelope.Success, told.Outcome)
	})

	t.Run("C17 one flow is one correlation, and every id is another", func(t *testing.T) {
		ids, keys := map[string]bool{}, map[string]bool{}
		all := awaitMessages(t, messages, "o-good", 7)
		first := all[slices.IndexFunc(all, func(m envelope.Message) bool { return m.CausationID == "" })]
		for _, m := range all {
			require.Equal(t, first.ID, m.CorrelationID)
			require.False(t, ids[m.ID])
			ids[m.ID] = true
			if m.Outcome == envelope.None {
				require.False(t, keys[m.IdempotencyKey])
				keys[m.IdempotencyKey] = true
			}
		}
		for _, m := range all {
			require.True(t, m.CausationID == "" || ids[m.CausationID])
		}
	})

	t.Run("a free order completes and is charged nothing", func(t *testing.T) {
		f.post(t, "o-free", func(a *asked) { a.CustomerID, a.Amount = "c-free", "0.00" })
		f.await(t, "o-free", "completed")
		require.Zero(t, ask[int64](t, f, "payment", "SELECT balance_cents FROM accounts WHERE customer_id = 'c-free'"))
		require.Zero(t, ask[int64](t, f, "payment", "SELECT amount_cents FROM ledger WHERE order_id = 'o-free'"))
	})

	t.Run("a refused payment leaves nothing to undo", func(t *testing.T) {
		f.post(t, "o-poor", func(a *asked) { a.CustomerID = "c-poor" })
		o := f.await(t, "o-poor", "compensated")
		require.Equal(t, "credit limit", o.Reason)
		require.Equal(t, []string{"payment StepStarted", "payment StepFailed"}, o.moments())
		require.Zero(t, ask[int64](t, f, "payment", "SELECT count(*) FROM ledger WHERE order_id = 'o-poor'"))
		awaitMessages(t, messages, "o-poor", 3)
	})

	t.Run("A16 an inventory failure refunds the payment", func(t *testing.T) {
		f.post(t, "o-many", func(a *asked) { a.CustomerID, a.Quantity = "c-many", 10_000_001 })
		o := f.await(t, "o-many", "compensated")
		require.Equal(t, "out of stock", o.Reason)
		require.Zero(t, ask[int64](t, f, "payment", "SELECT balance_cents FROM accounts WHERE customer_id = 'c-many'"))
		require.Equal(t, o.PaymentID, ask[string](t, f, "payment", "SELECT payment_id FROM ledger WHERE order_id = 'o-many' AND kind = 'refund'"))
		awaitMessages(t, messages, "o-many", 7)
	})

	t.Run("defect 3: a shipping failure releases the inventory and refunds the payment", func(t *testing.T) {
		f.post(t, "o-far", func(a *asked) { a.CustomerID = "c-far" })
		o := f.await(t, "o-far", "compensated")
		require.Equal(t, "cannot deliver: no road", o.Reason)
		require.Equal(t, []string{
			"payment StepStarted", "payment StepCompleted", "inventory StepStarted", "inventory StepCompleted", "shipping StepStarted",
			"shipping StepFailed", "inventory CompensationStarted", "inventory CompensationCompleted", "payment CompensationStarted",
			"payment CompensationCompleted",
		}, o.moments())
		require.True(t, ask[bool](t, f, "inventory", "SELECT released_at IS NOT NULL FROM reservations WHERE order_id = 'o-far'"))
		require.Zero(t, ask[int64](t, f, "payment", "SELECT balance_cents FROM accounts WHERE customer_id = 'c-far'"))
		require.Zero(t, ask[int64](t, f, "shipping", "SELECT count(*) FROM shipments WHERE order_id = 'o-far'"))
		all := awaitMessages(t, messages, "o-far", 11)
		told := all[slices.IndexFunc(all, func(m envelope.Message) bool { return m.Topic == f.name+".order.events" })]
		require.Equal(t, "troupe.order.OrderCancelled", told.Type)
		require.Equal(t, envelope.Failure, told.Outcome)
	})

	t.Run("a command that its hop gives up parks the order", func(t *testing.T) {
		f.exec(t, "shipping", "ALTER TABLE shipments ADD CHECK (order_id <> 'o-stuck')")
		f.post(t, "o-stuck", nil)
		o := f.await(t, "o-stuck", "parked")
		require.Equal(t, "shipping_exhausted", o.State)
		require.Contains(t, o.Reason, f.name+".shipping/troupe.order.ShipOrder gave up after 1 attempts")
		require.Equal(t, int64(1), ask[int64](t, f, "shipping", "SELECT count(*) FROM troupe.dead_letters"))
	})

	t.Run("an answer that this service gives up parks the order", func(t *testing.T) {
		f.exec(t, "order", "ALTER TABLE troupe.sagas ADD CHECK (key <> 'o-torn' OR state -> 'data' -> 'payment_id' IS NULL)")
		f.post(t, "o-torn", nil)
		o := f.await(t, "o-torn", "parked")
		require.Equal(t, "payment_exhausted", o.State)
		require.Contains(t, o.Reason, "gave up after 1 attempts")
		require.Equal(t, int64(1), ask[int64](t, f, "order", "SELECT count(*) FROM troupe.dead_letters"))
	})

	t.Run("a duplicate of any message changes nothing", func(t *testing.T) {
		f.awaitQuiet(t)
		records, before := f.all(t, messages), f.everything(t, "troupe.sagas", "troupe.saga_events")
		require.Greater(t, len(records), 40)
		again(t, records, false)
		f.awaitQuiet(t)
		require.Equal(t, before, f.everything(t, "troupe.sagas", "troupe.saga_events"))
		require.Len(t, f.all(t, messages), 2*len(records), "and no service answered")
	})

	t.Run("nor does one under another id", func(t *testing.T) {
		records, before := f.all(t, messages), f.everything(t, "troupe.sagas", "troupe.saga_events")
		again(t, records, true)
		f.awaitQuiet(t)
		require.Equal(t, before, f.everything(t, "troupe.sagas", "troupe.saga_events"))
		require.Greater(t, len(f.all(t, messages)), 2*len(records), "though it was answered")
	})
}

// everything returns all rows of the services' own tables, as text, and of the tables ofOrder in the order database.
func (f *flow) everything(t *testing.T, ofOrder ...string) map[string]string {
	t.Helper()
	tables := map[string]string{
		"orders": "order", "accounts": "payment", "ledger": "payment",
		"stock": "inventory", "reservations": "inventory", "shipments": "shipping",
	}
	for _, table := range ofOrder {
		tables[table] = "order"
	}
	rows := map[string]string{}
	for table, service := range tables {
		rows[table] = ask[string](t, f, service, fmt.Sprintf(
			"SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM %s AS t", table))
		require.NotEmpty(t, strings.TrimSpace(rows[table]), table)
	}
	return rows
}
