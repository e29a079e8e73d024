package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// The commands of the three services, and their answers.
type (
	ChargePayment struct {
		OrderID string `json:"order_id"`
		Cents   int64  `json:"cents"`
	}
	PaymentCharged struct {
		PaymentID string `json:"payment_id"`
	}
	RefundPayment struct {
		OrderID string `json:"order_id"`
	}
	PaymentRefused  struct{ Refusal }
	PaymentRefunded struct{}

	ReserveStock struct {
		OrderID string `json:"order_id"`
		Book    int    `json:"book"`
		Copies  int    `json:"copies"`
	}
	ReleaseStock struct {
		OrderID string `json:"order_id"`
	}
	StockReserved struct{}
	StockRefused  struct{ Refusal }
	StockReleased struct{}

	ShipOrder struct {
		OrderID string `json:"order_id"`
		Address string `json:"address"`
	}
	OrderShipped struct {
		ShipmentID string `json:"shipment_id"`
	}
	ShippingRefused struct{ Refusal }

	Refusal struct {
		Reason string `json:"reason"`
	}
)

// serve is a participant of the flow, all of which share one database.
func serve(pool *pgxpool.Pool, hop string, log zerolog.Logger) (*participant.Participant, error) {
	return participant.New(participant.Config{
		Pool: pool, Local: true, Hop: topics.MustHop("order", hop), Concurrency: 2, Log: log,
	})
}

func payment(p *participant.Participant) {
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ChargePayment]) (participant.Outcome, error) {
		if c.Body.Cents > 500_00 {
			return participant.Refuse(PaymentRefused{Refusal{"credit limit"}}), nil
		}
		_, err := tx.Exec(ctx, "INSERT INTO payments (order_id, cents) VALUES ($1, $2)", c.Body.OrderID, c.Body.Cents)
		return participant.Succeed(PaymentCharged{PaymentID: "p-" + c.Body.OrderID}), err
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[RefundPayment]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "UPDATE payments SET refunded = cents WHERE order_id = $1", c.Body.OrderID)
		return participant.Succeed(PaymentRefunded{}), err
	})
}

func inventory(p *participant.Participant) {
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ReserveStock]) (participant.Outcome, error) {
		// Correct also while other orders take or return copies of the book.
		const take = "UPDATE stock SET free = free - $2 WHERE book = $1 AND free >= $2"
		const known = "SELECT EXISTS (SELECT FROM stock WHERE book = $1)"
		tag, err := tx.Exec(ctx, take, c.Body.Book, c.Body.Copies)
		if err == nil && tag.RowsAffected() == 0 {
			var there bool
			if err = tx.QueryRow(ctx, known, c.Body.Book).Scan(&there); err == nil && !there {
				err = retry.Permanent(fmt.Errorf("book %d is not in the catalogue", c.Body.Book))
			}
			return participant.Refuse(StockRefused{Refusal{"sold out"}}), err
		}
		if err != nil {
			return participant.Outcome{}, err
		}
		const keep = "INSERT INTO reservations (order_id, book, copies) VALUES ($1, $2, $3)"
		_, err = tx.Exec(ctx, keep, c.Body.OrderID, c.Body.Book, c.Body.Copies)
		return participant.Succeed(StockReserved{}), err
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ReleaseStock]) (participant.Outcome, error) {
		const giveBack = `
WITH gone AS (DELETE FROM reservations WHERE order_id = $1 RETURNING book, copies)
UPDATE stock SET free = free + gone.copies FROM gone WHERE stock.book = gone.book`
		_, err := tx.Exec(ctx, giveBack, c.Body.OrderID)
		return participant.Succeed(StockReleased{}), err
	})
}

func shipping(p *participant.Participant) {
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ShipOrder]) (participant.Outcome, error) {
		if c.Body.Address == "Moon" {
			return participant.Refuse(ShippingRefused{Refusal{"no carrier to the Moon"}}), nil
		}
		_, err := tx.Exec(ctx, "INSERT INTO shipments (order_id, address) VALUES ($1, $2)", c.Body.OrderID, c.Body.Address)
		return participant.Succeed(OrderShipped{ShipmentID: "s-" + c.Body.OrderID}), err
	})
}
