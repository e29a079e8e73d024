// Package shipping is the service that sends orders to their customers.
//
//	ShipOrder ─► OrderShipped, or ShippingRefused if it cannot deliver
//
// Without a coordinator it ships when stock is reserved.
//
// It is the last hop of the flow, so a shipment is never compensated. An order has one shipment, and a repeated command gets the
// same answer.
package shipping

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/participant"
)

const hop = "shipping"

var (
	//go:embed schema.sql
	schema string
	// Reactions is the service's declaration for the flow without a coordinator.
	//go:embed reactions.json
	Reactions []byte
	//go:embed sql/ship.sql
	shipSQL string
)

type service struct{ cfg demo.Config }

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg demo.Config) error {
	s := service{cfg}
	return demo.Hop{Name: hop, Schema: schema, Reactions: Reactions, Handle: s.register, React: s.react}.Run(ctx, cfg)
}

// register registers the handlers of the coordinator's commands.
func (s service) register(p *participant.Participant) {
	participant.Handle(p, s.ship)
}

func (s service) ship(ctx context.Context, tx pgx.Tx, c participant.Command[messages.ShipOrder]) (participant.Outcome, error) {
	refuse := func(reason string) (participant.Outcome, error) {
		return participant.Refuse(messages.ShippingRefused{OrderID: c.Body.OrderID, Reason: reason}), nil
	}
	if s.cfg.Refuses(c.Body.OrderID, hop) {
		return refuse("lost on the way")
	}
	var obstacle string
	err := tx.QueryRow(ctx, "SELECT reason FROM undeliverable WHERE customer_id = $1", c.Body.CustomerID).Scan(&obstacle)
	if err == nil {
		return refuse("cannot deliver: " + obstacle)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return participant.Outcome{}, fmt.Errorf("read where nothing is delivered: %w", err)
	}
	shipped := messages.OrderShipped{OrderID: c.Body.OrderID, ShipmentID: "shp-" + c.Body.OrderID}
	err = participant.Queue(ctx, tx, shipSQL, pgx.NamedArgs{
		"shipment_id": shipped.ShipmentID, "order_id": c.Body.OrderID, "idempotency_key": c.Message.IdempotencyKey,
		"customer_id": c.Body.CustomerID, "title": c.Body.Title, "quantity": c.Body.Quantity,
	})
	if err != nil {
		return participant.Outcome{}, fmt.Errorf("ship: %w", err)
	}
	return participant.Succeed(shipped), nil
}
