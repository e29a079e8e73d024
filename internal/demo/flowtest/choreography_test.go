package flow_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/demo"
)

// TestTheOrderFlowWithoutACoordinator: the handlers that answer commands in an orchestration react to events
// here. As in TestOrderFlow each part has orders and customers of its own, and the last ones send every message again.
func TestTheOrderFlowWithoutACoordinator(t *testing.T) {
	f := startFlow(t, demo.Choreography)
	f.exec(t, "payment", "INSERT INTO accounts (customer_id, limit_cents) VALUES ('c-poor', 2000)")
	f.exec(t, "shipping", "INSERT INTO undeliverable VALUES ('c-far', 'no road')")
	messages := f.onlooker()
	// said returns the types of the order's n messages, each after its cause.
	said := func(t *testing.T, id string, n int) (types []string) {
		all := awaitMessages(t, messages, id, n)
		for cause := ""; len(types) < n; {
			next := slices.IndexFunc(all, func(m envelope.Message) bool { return m.CausationID == cause })
			require.GreaterOrEqual(t, next, 0, "what follows from %q", cause)
			types, cause = append(types, all[next].Type[len("troupe."):]), all[next].ID
			require.Equal(t, all[0].CorrelationID, all[next].CorrelationID, "one flow is one correlation")
		}
		return types
	}

	t.Run("paid, reserved, shipped, completed: five messages, no command", func(t *testing.T) {
		f.post(t, "o-good", nil)
		o := f.await(t, "o-good", "completed")
		require.Equal(t, "shp-o-good", o.ShipmentID)
		require.Equal(t, []string{
			"order.OrderPlaced", "order.PaymentCharged", "order.StockReserved", "order.OrderShipped", "order.OrderCompleted",
		}, said(t, "o-good", 5))
		require.Equal(t, int64(2933), ask[int64](t, f, "payment", "SELECT amount_cents FROM ledger WHERE order_id = 'o-good' AND kind = 'charge'"))
		require.Equal(t, int32(2), ask[int32](t, f, "inventory", "SELECT quantity FROM reservations WHERE order_id = 'o-good' AND released_at IS NULL"))
		require.Equal(t, "c-1 2", ask[string](t, f, "shipping", "SELECT customer_id || ' ' || quantity FROM shipments WHERE order_id = 'o-good'"))
	})

	t.Run("a refused payment leaves nothing to undo", func(t *testing.T) {
		f.post(t, "o-poor", func(a *asked) { a.CustomerID = "c-poor" })
		require.Equal(t, "credit limit", f.await(t, "o-poor", "compensated").Reason)
		require.Equal(t, []string{"order.OrderPlaced", "order.PaymentRefused", "order.OrderCancelled"}, said(t, "o-poor", 3))
		require.Zero(t, ask[int64](t, f, "payment", "SELECT count(*) FROM ledger WHERE order_id = 'o-poor'"))
	})

	t.Run("an inventory failure refunds the payment", func(t *testing.T) {
		f.post(t, "o-many", func(a *asked) { a.CustomerID, a.Quantity = "c-many", 10_000_001 })
		require.Equal(t, "out of stock", f.await(t, "o-many", "compensated").Reason)
		require.Equal(t, []string{
			"order.OrderPlaced", "order.PaymentCharged", "order.StockRefused", "order.PaymentRefunded", "order.OrderCancelled",
		}, said(t, "o-many", 5))
		require.Zero(t, ask[int64](t, f, "payment", "SELECT balance_cents FROM accounts WHERE customer_id = 'c-many'"))
	})

	t.Run("a shipping failure goes back hop by hop", func(t *testing.T) {
		f.post(t, "o-far", func(a *asked) { a.CustomerID = "c-far" })
		require.Equal(t, "cannot deliver: no road", f.await(t, "o-far", "compensated").Reason)
		require.Equal(t, []string{
			"order.OrderPlaced", "order.PaymentCharged", "order.StockReserved", "order.ShippingRefused", "order.StockReleased",
			"order.PaymentRefunded", "order.OrderCancelled",
		}, said(t, "o-far", 7))
		require.True(t, ask[bool](t, f, "inventory", "SELECT released_at IS NOT NULL FROM reservations WHERE order_id = 'o-far'"))
		require.Zero(t, ask[int64](t, f, "payment", "SELECT balance_cents FROM accounts WHERE customer_id = 'c-far'"))
		require.Zero(t, ask[int64](t, f, "shipping", "SELECT count(*) FROM shipments WHERE order_id = 'o-far'"))
	})

	t.Run("what a hop gives up parks the order, and redriven takes it up", func(t *testing.T) {
		f.exec(t, "inventory", "ALTER TABLE reservations ADD CONSTRAINT torn CHECK (order_id <> 'o-stuck')")
		f.post(t, "o-stuck", nil)
		require.Contains(t, f.await(t, "o-stuck", "parked").Reason, f.name+".inventory/troupe.order.PaymentCharged gave up after 1 attempts")
		f.exec(t, "inventory", "ALTER TABLE reservations DROP CONSTRAINT torn")
		f.redrive(t, "inventory")
		f.await(t, "o-stuck", "completed")
	})

	t.Run("an end that the order service gives up parks the order, likewise", func(t *testing.T) {
		f.exec(t, "order", "ALTER TABLE order_ends ADD CONSTRAINT torn CHECK (order_id <> 'o-torn')")
		f.post(t, "o-torn", nil)
		require.Contains(t, f.await(t, "o-torn", "parked").Reason, "torn")
		f.exec(t, "order", "ALTER TABLE order_ends DROP CONSTRAINT torn")
		f.redrive(t, "order")
		f.await(t, "o-torn", "completed")
	})

	t.Run("a duplicate of any message changes nothing", func(t *testing.T) {
		f.awaitQuiet(t)
		records, before := f.all(t, messages), f.everything(t, "order_ends")
		require.Greater(t, len(records), 25)
		again(t, records, false)
		f.awaitQuiet(t)
		require.Equal(t, before, f.everything(t, "order_ends"))
		require.Len(t, f.all(t, messages), 2*len(records), "and no service answered")
	})

	t.Run("nor does one under another id", func(t *testing.T) {
		records, before := f.all(t, messages), f.everything(t, "order_ends")
		again(t, records, true)
		f.awaitQuiet(t)
		require.Equal(t, before, f.everything(t, "order_ends"))
		require.Greater(t, len(f.all(t, messages)), 2*len(records), "though it was answered")
	})

	t.Run("no end is awaited any more", func(t *testing.T) {
		require.Zero(t, ask[int64](t, f, "order", "SELECT count(*) FROM troupe.deadlines"))
		require.Zero(t, ask[int64](t, f, "order", "SELECT count(*) FROM troupe.expectations WHERE forget_at IS NULL"))
	})
}

// redrive redrives the dead letters of a service, as troupe dlq redrive does.
func (f *flow) redrive(t *testing.T, service string) {
	t.Helper()
	desk, err := repair.New(repair.Config{Pool: f.databases[service]})
	require.NoError(t, err)
	r, err := desk.Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: admin.Actor{Name: "ann", Reason: "mended"}})
	require.NoError(t, err)
	require.Equal(t, 1, r.Redriven)
}
