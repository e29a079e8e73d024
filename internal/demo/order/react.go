package order

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// In a choreography this service emits that an order was placed, and consumes the events that end it. It does not know the steps
// in between.
var (
	// Reactions is the service's declaration for the choreography.
	//go:embed reactions.json
	Reactions []byte
	//go:embed choreography.sql
	choreographySQL string
	//go:embed sql/end_order.sql
	endSQL string
	//go:embed sql/park_order.sql
	parkSQL string
)

// registerReactions registers the handlers of other services' events, and returns the function that begins a flow.
func registerReactions(f *flow.Service) (begin func(context.Context, pgx.Tx, Order) error) {
	p := f.Participant()
	of := func(hop string) topics.Hop { return topics.MustHop(p.Hop().Flow(), hop) }
	flow.On(f, of("shipping"), onShipped)
	flow.On(f, of("payment"), onRefused)
	flow.On(f, of("payment"), onRefunded)
	for _, hop := range []string{"payment", "inventory", "shipping"} {
		flow.On(f, of(hop), onExhausted)
	}
	flow.OnMissed(f, "order-ends", onMissed)
	return func(ctx context.Context, tx pgx.Tx, o Order) error {
		return p.Outbox().Write(ctx, tx, outbox.Entry{
			Topic: p.Hop().Events(), Key: o.ID, Outcome: envelope.Success, IdempotencyKey: o.ID,
			Body: messages.OrderPlaced{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, Title: o.Title, Quantity: o.Quantity},
		})
	}
}

// An orderEnd is the final status of an order.
type orderEnd struct{ orderID, status, reason, shipmentID string }

// store writes the end, and returns the customer and the amount for the customer's notification.
func (e orderEnd) store(ctx context.Context, tx pgx.Tx) (customerID string, cents int64, err error) {
	err = tx.QueryRow(ctx, endSQL, pgx.NamedArgs{
		"order_id": e.orderID, "status": e.status, "reason": orNull(e.reason), "shipment_id": orNull(e.shipmentID),
	}).Scan(&customerID, &cents)
	if err != nil {
		err = fmt.Errorf("end order %s: %w", e.orderID, err)
	}
	return customerID, cents, err
}

func onShipped(ctx context.Context, tx pgx.Tx, e participant.Event[messages.OrderShipped]) (participant.Outcome, error) {
	customer, cents, err := orderEnd{e.Body.OrderID, "completed", "", e.Body.ShipmentID}.store(ctx, tx)
	return participant.Succeed(messages.OrderCompleted{
		OrderID: e.Body.OrderID, CustomerID: customer, AmountCents: cents, ShipmentID: e.Body.ShipmentID,
	}), err
}

func onRefused(ctx context.Context, tx pgx.Tx, e participant.Event[messages.PaymentRefused]) (participant.Outcome, error) {
	return cancelled(ctx, tx, e.Body.OrderID, e.Body.Reason, nil)
}

func onRefunded(ctx context.Context, tx pgx.Tx, e participant.Event[messages.PaymentRefunded]) (participant.Outcome, error) {
	return cancelled(ctx, tx, e.Body.OrderID, e.Body.Reason, e.Body.Compensated)
}

func cancelled(ctx context.Context, tx pgx.Tx, orderID, reason string, undone []string) (participant.Outcome, error) {
	customer, _, err := orderEnd{orderID, "compensated", reason, ""}.store(ctx, tx)
	return participant.Succeed(messages.OrderCancelled{OrderID: orderID, CustomerID: customer, Reason: reason, Compensated: undone}), err
}

// onExhausted parks the order. Its message is a dead letter at the hop that gave up, and needs an operator: when it is redriven, the
// flow continues at that hop.
func onExhausted(ctx context.Context, tx pgx.Tx, e participant.Event[participant.Exhausted]) (participant.Outcome, error) {
	reason := fmt.Sprintf("%s gave up after %d attempts: %s", e.Body.Handler, e.Body.Attempts, e.Body.Error)
	return participant.Done(), park(ctx, tx, string(e.Message.Key), reason)
}

// onMissed also parks the order, so that an operator examines it. The order may still end.
func onMissed(ctx context.Context, tx pgx.Tx, m flow.Missed) (participant.Outcome, error) {
	const reason = "neither shipped nor refused nor refunded in time"
	return participant.Refuse(messages.OrderLate{OrderID: m.Key, Reason: reason}), park(ctx, tx, m.Key, reason)
}

func park(ctx context.Context, tx pgx.Tx, orderID, reason string) error {
	return participant.Queue(ctx, tx, parkSQL, pgx.NamedArgs{"order_id": orderID, "reason": reason})
}
