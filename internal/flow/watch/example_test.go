package watch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
)

// Example watches an order that was placed an hour ago and that payment has not answered. It ends with the first finding.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, brokers, end, err := servers(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	placed := flow.Message{Topic: "order.order.events", Type: "Placed"}
	w, err := watch.New(watch.Config{
		Pool: pool, Brokers: brokers, Flow: "order",
		Declared: []flow.Declaration{
			{Hop: "order.order", Starts: []flow.Message{placed}},
			{Hop: "order.payment", Reactions: []flow.Reaction{{
				On: placed, Success: []flow.Message{{Topic: "order.payment.events", Type: "Paid", Last: true}},
			}}},
		},
		Found: func(_ context.Context, f watch.Finding) {
			fmt.Println(f.Kind, f.Key, f.Text)
			stop()
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// missing o-1 order.payment has not sent Paid within 1m0s after Placed of order.order.events
}

// ExampleOpenDesk opens a database in which no watcher has stored a flow yet.
func ExampleOpenDesk() {
	ctx := context.Background()
	pool, _, end, err := servers(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	_, err = watch.OpenDesk(ctx, pool, "order")
	fmt.Println(err)
	fmt.Println(errors.Is(err, watch.ErrNone))
	// Output:
	// watch: not seen by a watcher: no flow is watched in this database
	// true
}

// servers starts a database with Troupe's tables, and a broker with an order.
func servers(ctx context.Context) (pool *pgxpool.Pool, brokers []string, end func(), err error) {
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		return nil, nil, nil, err
	}
	broker, err := devstack.StartKafka(ctx, devstack.KafkaConfig{Log: zerolog.Nop()})
	if err != nil {
		return nil, nil, nil, errors.Join(err, server.Close())
	}
	url, err := server.CreateDatabase(ctx, "watch", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	if err == nil {
		err = placeOrder(ctx, broker.Addrs())
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, broker.Close(), server.Close())
	}
	return pool, broker.Addrs(), func() {
		pool.Close()
		_ = broker.Close()
		_ = server.Close()
	}, nil
}

func placeOrder(ctx context.Context, brokers []string) error {
	client, err := kafka.NewClient(brokers)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := kafka.Provision(ctx, client, kafka.Topic{Name: "order.order.events", Partitions: 1}); err != nil {
		return err
	}
	return client.ProduceSync(ctx, &kgo.Record{
		Topic: "order.order.events", Key: []byte("o-1"), Timestamp: time.Now().Add(-time.Hour),
		Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte("1")}, {Key: "ce_type", Value: []byte("Placed")}},
	}).FirstErr()
}
