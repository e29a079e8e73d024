package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

// A shop takes orders, with a row for each. Some are submitted twice, and the table rejects one.
func ExampleCoordinator_Submit() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	if err := shop(ctx, pool); err != nil {
		fmt.Println(err)
	}
	// Output:
	// refused by orders_quantity_check
	// 20 sagas, 20 orders
}

func shop(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "CREATE TABLE orders (id text PRIMARY KEY, quantity int NOT NULL CHECK (quantity > 0))")
	if err != nil {
		return err
	}
	text, err := os.ReadFile("../testdata/order.saga.json")
	if err != nil {
		return err
	}
	d, err := saga.Parse(text)
	if err != nil {
		return err
	}
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "order"), Local: true})
	if err != nil {
		return err
	}
	c, err := coordinator.New(ctx, coordinator.Config{Participant: p, Pool: pool, Definitions: []*saga.Definition{d}})
	if err != nil {
		return err
	}

	// Each request does this; a service handles many at once.
	place := func(id string, quantity int) error {
		own := &pgx.Batch{}
		own.Queue("INSERT INTO orders (id, quantity) VALUES ($1, $2)", id, quantity)
		_, err := c.Submit(ctx, "order", map[string]any{
			"order_id": id, "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": quantity,
		}, own)
		return err
	}
	var requests sync.WaitGroup
	for i := range 40 {
		requests.Go(func() {
			if err := place(fmt.Sprint("o-", i/2), 1); err != nil {
				fmt.Println(err)
			}
		})
	}
	requests.Go(func() {
		var refused *pgconn.PgError
		if errors.As(place("o-none", 0), &refused) {
			fmt.Println("refused by", refused.ConstraintName)
		}
	})
	requests.Wait()

	var sagas, orders int
	const count = "SELECT (SELECT count(*) FROM troupe.sagas), (SELECT count(*) FROM orders)"
	err = pool.QueryRow(ctx, count).Scan(&sagas, &orders)
	fmt.Println(sagas, "sagas,", orders, "orders")
	return err
}
