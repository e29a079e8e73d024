package timeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
)

// ExampleRead reads an order that was placed while no relay of the order service is running.
func ExampleRead() {
	ctx := context.Background()
	orders, end, err := database(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	const place = `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('order.payment.commands', 'o-1', 'ChargePayment', '{"cents": 999}')`
	if _, err := orders.Exec(ctx, place); err != nil {
		fmt.Println(err)
		return
	}

	t, err := timeline.Read(ctx, timeline.Config{
		Databases: []timeline.Database{{Name: "order", Pool: orders}},
		// Brokers and Flow would add the messages of the topics.
	}, "o-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range t.Entries {
		fmt.Println(e.Hop, e.Kind, e.Type, string(e.Payload))
	}
	for _, f := range t.Findings {
		what, _, _ := strings.Cut(f.Text, " is ")
		fmt.Println(t.Entries[f.Entry].Type, what)
	}
	fmt.Println("not seen:", t.Unseen)
	// Output:
	// order.payment command ChargePayment {"cents": 999}
	// ChargePayment not published yet: row 1 of the outbox of order
	// not seen: []
}

// database starts a database with Troupe's tables.
func database(ctx context.Context) (pool *pgxpool.Pool, end func(), err error) {
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, err
	}
	url, err := server.CreateDatabase(ctx, "orders", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return pool, func() {
		pool.Close()
		_ = server.Close()
	}, nil
}
