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

// What a loop decides is rendered one by one, and written by one statement with whatever else goes to the server then.
func ExampleOutbox_Render() {
	out, err := outbox.New(outbox.Config{Source: "order"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var rows outbox.Rows
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		if err := out.Render(context.Background(), &rows, outbox.Entry{
			Topic: "order.payment.commands", Key: id, Body: ChargePayment{OrderID: id, Cents: 100},
		}); err != nil {
			fmt.Println(err)
			return
		}
	}
	batch := &pgx.Batch{} // to be sent on a transaction
	out.Queue(batch, &rows)
	fmt.Println(batch.Len() <= 2, "the entries, and a notification where one is due")
	// Output: true the entries, and a notification where one is due
}
