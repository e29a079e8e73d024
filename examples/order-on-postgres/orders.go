package main

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

//go:embed order.saga.json
var definition []byte

// An Order is a customer's order of copies of a book.
type Order struct {
	ID      string
	Book    int
	Copies  int
	Cents   int64
	Address string
}

// What the saga says when it has ended.
type (
	OrderCompleted struct {
		OrderID string `json:"order_id"`
	}
	OrderCancelled struct {
		OrderID string `json:"order_id"`
		Reason  string `json:"reason"`
	}
)

// coordinate makes the order service's participant the one that decides, and lets the service hear of the ends.
func coordinate(ctx context.Context, pool *pgxpool.Pool, own *participant.Participant) (*coordinator.Coordinator, error) {
	order, err := saga.Parse(definition)
	if err != nil {
		return nil, err
	}
	participant.On(own, own.Hop(), func(ctx context.Context, tx pgx.Tx, e participant.Event[OrderCompleted]) error {
		_, err := tx.Exec(ctx, "UPDATE orders SET status = 'shipped' WHERE id = $1", e.Body.OrderID)
		return err
	})
	participant.On(own, own.Hop(), func(ctx context.Context, tx pgx.Tx, e participant.Event[OrderCancelled]) error {
		_, err := tx.Exec(ctx, "UPDATE orders SET status = 'cancelled' WHERE id = $1", e.Body.OrderID)
		return err
	})
	return coordinator.New(ctx, coordinator.Config{Participant: own, Pool: pool, Definitions: []*saga.Definition{order}})
}

// place takes an order: its row and its saga are one transaction. No service has heard of it when place returns.
func place(ctx context.Context, pool *pgxpool.Pool, sagas *coordinator.Coordinator, o Order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		const insert = `
INSERT INTO orders (id, book, copies, cents, address)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING`
		if _, err := tx.Exec(ctx, insert, o.ID, o.Book, o.Copies, o.Cents, o.Address); err != nil {
			return err
		}
		_, err := sagas.Start(ctx, tx, "order", map[string]any{
			"order_id": o.ID, "book": o.Book, "copies": o.Copies, "cents": o.Cents, "address": o.Address,
		})
		return err
	})
}
