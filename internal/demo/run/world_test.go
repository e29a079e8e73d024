package run

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/orders"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// A world holds the four databases as a good run leaves them, with the services' own tables but without their constraints: the
// checks must find violations of those as well.
type world struct {
	t     *testing.T
	pools pools
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, pools: pools{}}
	for _, service := range services {
		w.pools[service] = testkit.Database(t)
		schema, err := os.ReadFile("../" + service + "/schema.sql")
		require.NoError(t, err)
		w.exec(service, string(schema))
		w.exec(service, `
			DO $$
			DECLARE c record;
			BEGIN
			  FOR c IN SELECT conrelid::regclass AS relation, conname FROM pg_constraint
			           WHERE conrelid <> 0 AND coninhcount = 0
			             AND (connamespace = 'public'::regnamespace OR conrelid IN ('troupe.held'::regclass, 'troupe.sagas'::regclass) AND contype = 'c')
			           ORDER BY contype = 'p'
			  LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS %I CASCADE', c.relation, c.conname); END LOOP;
			END $$`)
	}
	return w
}

func (w *world) exec(service, sql string) {
	w.t.Helper()
	_, err := w.pools[service].Exec(w.t.Context(), sql)
	require.NoError(w.t, err, sql)
}

var inService = regexp.MustCompile(`(?m)^-- in (\w+)$`)

// reset restores the good state.
func (w *world) reset() {
	text, err := os.ReadFile("testdata/world.sql")
	require.NoError(w.t, err)
	parts := inService.Split(string(text), -1)
	for i, name := range inService.FindAllStringSubmatch(string(text), -1) {
		w.exec(name[1], parts[i+1])
	}
	w.playSagas()
}

// playSagas decides the orders' sagas and stores them, as the coordinator does in a good run.
func (w *world) playSagas() {
	w.t.Helper()
	text, err := os.ReadFile("../order/order.saga.json")
	require.NoError(w.t, err)
	d, err := saga.Parse(text)
	require.NoError(w.t, err)
	w.exec("order", "INSERT INTO troupe.saga_definitions VALUES ('"+d.Hash()+"', 'order', 1, '"+strings.ReplaceAll(string(d.JSON()), "'", "''")+"') ON CONFLICT DO NOTHING")
	answer := func(step, operation, outcome, typ string) saga.Event {
		return saga.Event{
			Kind: saga.Answered, Step: step, Operation: operation, Outcome: outcome, Hop: step, Type: "troupe.order." + typ,
			Fields: map[string]any{"payment_id": "p", "reservation_id": "r", "shipment_id": "s", "reason": "no"},
		}
	}
	charged := answer("payment", "forward", "success", "PaymentCharged")
	reserved := answer("inventory", "forward", "success", "StockReserved")
	gaveUp := answer("shipping", "forward", "exhausted", "Exhausted")
	for i, o := range goodOrders {
		var changes decisions.Change
		events := append([]saga.Event{{Kind: saga.Started, Fields: map[string]any{
			"order_id": o.ID, "customer_id": o.CustomerID, "amount_cents": o.AmountCents, "title": int64(7), "quantity": o.Quantity,
		}}}, map[string][]saga.Event{
			"o-done":    {charged, reserved, answer("shipping", "forward", "success", "OrderShipped")},
			"o-refused": {answer("payment", "forward", "failure", "PaymentRefused")},
			"o-undone": {
				charged, reserved, answer("shipping", "forward", "failure", "ShippingRefused"),
				answer("inventory", "compensate", "success", "StockReleased"), answer("payment", "compensate", "success", "PaymentRefunded"),
			},
			"o-parked": {charged, reserved, gaveUp},
		}[o.ID]...)
		for n, e := range events {
			at := time.Date(2000, 1, 1, 0, 0, i, 0, time.UTC)
			if n == len(events)-1 {
				at = at.Add(time.Duration(i+1) * time.Second) // each takes a second longer than the one before
			}
			s, fx := saga.Decide(d, changes.State, e, at)
			require.Empty(w.t, fx.Ignored+fx.Refused, "%s: %s", o.ID, e.Type)
			changes.State = s
			changes.Entries = append(changes.Entries, decisions.Entry{Version: s.Version, At: at, Event: e, Moments: fx.Moments})
		}
		require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.pools["order"], func(tx pgx.Tx) error {
			return decisions.NewPostgres(tx, "f.order", "f.order").Save(w.t.Context(), []decisions.Change{changes})
		}))
	}
}

var goodOrders = []orders.Order{
	{ID: "o-done", CustomerID: "c-1", PlacedAt: "1997-01-01", Quantity: 2, AmountCents: 1000},
	{ID: "o-refused", CustomerID: "c-1", PlacedAt: "1997-01-02", Quantity: 1, AmountCents: 500},
	{ID: "o-undone", CustomerID: "c-2", PlacedAt: "1997-01-03", Quantity: 3, AmountCents: 250},
	{ID: "o-parked", CustomerID: "c-2", PlacedAt: "1997-01-04", Quantity: 4, AmountCents: 125},
}

// facts returns the contents of the databases, with the posted orders and the messages of a good run.
func (w *world) facts() *facts {
	w.t.Helper()
	f := &facts{
		style:  demo.Orchestration,
		posted: slices.Clone(goodOrders),
		fail:   demo.Fail{"payment": 0.3, "shipping": 0.3}, seed: goodSeed,
		messages: goodMessages(),
		unread:   map[string]int64{"order": 0, "payment": 0, "inventory": 0, "shipping": 0},
	}
	require.NoError(w.t, f.readRows(w.t.Context(), w.pools))
	return f
}

// goodSeed is a seed for which the shares above choose o-refused at payment and o-undone at shipping, and nothing else.
const goodSeed = 31

func goodMessages() []message {
	at := func(second int) time.Time { return time.Date(2000, 1, 1, 0, 0, second, 0, time.UTC) }
	return []message{
		{topic: "f.payment.commands", key: "o-done", id: "1", typ: "ChargePayment", written: at(1)},
		{topic: "f.payment.events", key: "o-done", id: "2", typ: "PaymentCharged", cause: "1", written: at(2)},
		{topic: "f.order.events", key: "o-done", id: "3", typ: "OrderCompleted", cause: "2", written: at(3)},
		{topic: "f.payment.commands", key: "o-refused", id: "4", typ: "ChargePayment", written: at(1)},
		{topic: "f.payment.events", key: "o-refused", id: "5", typ: "PaymentRefused", cause: "4", written: at(2)},
		{topic: "f.order.events", key: "o-refused", id: "6", typ: "OrderCancelled", cause: "5", written: at(3)},
		{topic: "f.payment.commands", key: "o-undone", id: "7", typ: "ChargePayment", written: at(1)},
		{topic: "f.payment.commands", key: "o-undone", id: "8", typ: "RefundPayment", cause: "7", written: at(2)},
		{topic: "f.payment.commands", key: "o-undone", id: "7", typ: "ChargePayment", written: at(1)}, // a copy, late
		{topic: "f.order.events", key: "o-undone", id: "9", typ: "OrderCancelled", cause: "8", written: at(3)},
		{topic: "f.order.events", key: "o-undone", id: "9", typ: "OrderCancelled", cause: "8", written: at(3)}, // a copy
	}
}
