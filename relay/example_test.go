package relay_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/relay"
)

// A relay inside your own program; outbox-relay is the same as a program of its own.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, "postgres://shop@127.0.0.1:5432/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	r, err := relay.New(relay.Config{Pool: pool, Brokers: []string{"127.0.0.1:9092"}, Service: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop() // in a program: when it must end
	fmt.Println(r.Run(ctx), r.Status().Role)
	// Output: <nil> stopped
}

// An outbox table of another shape, with the options of Debezium's EventRouter.
func Example_mapping() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, "postgres://shop@127.0.0.1:5432/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	r, err := relay.New(relay.Config{
		Pool: pool, Brokers: []string{"127.0.0.1:9092"}, Service: "shop", Table: "public.outbox",
		Mapping: map[string]string{
			"route.by.field": "aggregate_type", "route.topic.replacement": "${routedByValue}.events", "headers": "eventrouter",
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop() // in a program: when it must end
	fmt.Println(r.Run(ctx), r.Status().Table)
	// Output: <nil> public.outbox
}
