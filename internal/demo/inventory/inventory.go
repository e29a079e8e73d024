// Package inventory is the service that reserves stock and releases it.
//
//	ReserveStock ─► StockReserved, or StockRefused when the title is out of stock
//	ReleaseStock ─► StockReleased
//
// Without a coordinator it reserves when an order is paid, and releases when shipping refuses.
//
// Stock is decremented in the statement that inserts the order's reservation, and incremented in the statement that marks it
// released: a repeated command finds that row, changes nothing and gets the same answer. A release without a reservation inserts
// an empty released reservation, and the reservation that comes after it is refused.
package inventory

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

const hop = "inventory"

var (
	//go:embed schema.sql
	schema string
	// Reactions is the service's declaration for the flow without a coordinator.
	//go:embed reactions.json
	Reactions []byte
	//go:embed sql/reserve.sql
	reserveSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/release_nothing.sql
	releaseNothingSQL string
	//go:embed sql/select_reservation.sql
	selectSQL string
)

type service struct{ cfg demo.Config }

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg demo.Config) error {
	s := service{cfg}
	return demo.Hop{Name: hop, Schema: schema, Reactions: Reactions, Handle: s.register, React: s.react}.Run(ctx, cfg)
}

// register registers the handlers of the coordinator's commands.
func (s service) register(p *participant.Participant) {
	participant.Handle(p, s.reserve)
	participant.Handle(p, s.release)
}

func (s service) reserve(ctx context.Context, tx pgx.Tx, c participant.Command[messages.ReserveStock]) (participant.Outcome, error) {
	refuse := func(reason string) (participant.Outcome, error) {
		return participant.Refuse(messages.StockRefused{OrderID: c.Body.OrderID, Reason: reason}), nil
	}
	if s.cfg.Refuses(c.Body.OrderID, hop) {
		return refuse("damaged in the warehouse")
	}
	err := participant.Queue(ctx, tx, reserveSQL, pgx.NamedArgs{
		"reservation_id": reservationID(c.Body.OrderID), "order_id": c.Body.OrderID,
		"idempotency_key": c.Message.IdempotencyKey, "title": c.Body.Title, "quantity": c.Body.Quantity,
	})
	if err != nil {
		return participant.Outcome{}, fmt.Errorf("reserve: %w", err)
	}
	var released bool
	r := messages.StockReserved{OrderID: c.Body.OrderID, Title: c.Body.Title}
	err = tx.QueryRow(ctx, selectSQL, pgx.NamedArgs{"order_id": c.Body.OrderID}).Scan(&r.ReservationID, &r.Quantity, &released)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refuse("out of stock")
	case err != nil:
		return participant.Outcome{}, fmt.Errorf("read reservation: %w", err)
	case released:
		return refuse("the order was cancelled")
	}
	return participant.Succeed(r), nil
}

func (s service) release(ctx context.Context, tx pgx.Tx, c participant.Command[messages.ReleaseStock]) (participant.Outcome, error) {
	args := pgx.NamedArgs{
		"reservation_id": reservationID(c.Body.OrderID), "order_id": c.Body.OrderID,
		"idempotency_key": c.Message.IdempotencyKey,
	}
	for _, sql := range []string{releaseSQL, releaseNothingSQL} {
		if err := participant.Queue(ctx, tx, sql, args); err != nil {
			return participant.Outcome{}, fmt.Errorf("release: %w", err)
		}
	}
	return participant.Succeed(messages.StockReleased{OrderID: c.Body.OrderID, ReservationID: reservationID(c.Body.OrderID)}), nil
}

func reservationID(orderID string) string { return "res-" + orderID }
