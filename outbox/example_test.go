package outbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/outbox"
)

// An order and the command that follows from it, in one transaction.
func Example() {
	out, err := outbox.New(outbox.Config{Source: "order"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = func(ctx context.Context, pool *pgxpool.Pool, id string, cents int64) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id, cents) VALUES ($1, $2)", id, cents); err != nil {
				return err
			}
			return out.Write(ctx, tx, outbox.Entry{
				Topic: "order.payment.commands", Key: id, Body: ChargePayment{OrderID: id, Cents: cents},
			})
		})
	}
	// Output:
}
