package order

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/schemas/order"
	"github.com/troupe-go/troupe/topics"
)

// Where each service decides for itself, this one says that an order was placed, and hears how it ended. What the others do
// in between it does not know.
var (
	// Reactions is what the service declares to do then.
	//go:embed reactions.json
	Reactions []byte
	//go:embed choreography.sql
	choreographySQL string
	//go:embed sql/end_order.sql
	endSQL string
	//go:embed sql/park_order.sql
	parkSQL string
)

// listen registers what the service does about the events of others, and gives what begins a flow.
func listen(f *flow.Service) (begin func(context.Context, pgx.Tx, Order) error) {
	p := f.Participant()
	of := func(hop string) topics.Hop { return topics.MustHop(p.Hop().Flow(), hop) }
	flow.On(f, of("shipping"), onShipped)
	flow.On(f, of("payment"), onRefused)
	flow.On(f, of("payment"), onRefunded)
	for _, hop := range []string{"payment", "inventory", "shipping"} {
		flow.On(f, of(hop), gaveUp)
	}
	flow.OnMissed(f, "order-ends", late)
	return func(ctx context.Context, tx pgx.Tx, o Order) error {
		return p.Outbox().Write(ctx, tx, outbox.Entry{
			Topic: p.Hop().Events(), Key: o.ID, Outcome: envelope.Success, IdempotencyKey: o.ID,
			Body: order.OrderPlaced{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, Title: o.Title, Quantity: o.Quantity},
		})
	}
}

// An end of an order.
type end struct{ orderID, status, reason, shipmentID string }

// write gives what the customer is told, beside the end.
func (e end) write(ctx context.Context, tx pgx.Tx) (customerID string, cents int64, err error) {
	err = tx.QueryRow(ctx, endSQL, pgx.NamedArgs{
		"order_id": e.orderID, "status": e.status, "reason": orNull(e.reason), "shipment_id": orNull(e.shipmentID),
	}).Scan(&customerID, &cents)
	if err != nil {
		err = fmt.Errorf("end order %s: %w", e.orderID, err)
	}
	return customerID, cents, err
}

func onShipped(ctx context.Context, tx pgx.Tx, e participant.Event[order.OrderShipped]) (participant.Outcome, error) {
	customer, cents, err := end{e.Body.OrderID, "completed", "", e.Body.ShipmentID}.write(ctx, tx)
	return participant.Succeed(order.OrderCompleted{
		OrderID: e.Body.OrderID, CustomerID: customer, AmountCents: cents, ShipmentID: e.Body.ShipmentID,
	}), err
}

func onRefused(ctx context.Context, tx pgx.Tx, e participant.Event[order.PaymentRefused]) (participant.Outcome, error) {
	return cancelled(ctx, tx, e.Body.OrderID, e.Body.Reason, nil)
}

func onRefunded(ctx context.Context, tx pgx.Tx, e participant.Event[order.PaymentRefunded]) (participant.Outcome, error) {
	return cancelled(ctx, tx, e.Body.OrderID, e.Body.Reason, e.Body.Compensated)
}

func cancelled(ctx context.Context, tx pgx.Tx, orderID, reason string, undone []string) (participant.Outcome, error) {
	customer, _, err := end{orderID, "compensated", reason, ""}.write(ctx, tx)
	return participant.Succeed(order.OrderCancelled{OrderID: orderID, CustomerID: customer, Reason: reason, Compensated: undone}), err
}

// gaveUp parks the order. Its message waits as a dead letter at the hop that gave up, which nobody but a person knows how to
// mend: redriven, it takes the flow up where it stopped.
func gaveUp(ctx context.Context, tx pgx.Tx, e participant.Event[participant.Exhausted]) (participant.Outcome, error) {
	reason := fmt.Sprintf("%s gave up after %d attempts: %s", e.Body.Handler, e.Body.Attempts, e.Body.Error)
	return participant.Done(), park(ctx, tx, string(e.Message.Key), reason)
}

// late parks the order, too: somebody should look. It may still end.
func late(ctx context.Context, tx pgx.Tx, m flow.Missed) (participant.Outcome, error) {
	const reason = "neither shipped nor refused nor refunded in time"
	return participant.Refuse(order.OrderLate{OrderID: m.Key, Reason: reason}), park(ctx, tx, m.Key, reason)
}

func park(ctx context.Context, tx pgx.Tx, orderID, reason string) error {
	return participant.Queue(ctx, tx, parkSQL, pgx.NamedArgs{"order_id": orderID, "reason": reason})
}
