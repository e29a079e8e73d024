package devstack_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/devstack"
)

func ExampleStartPostgres() {
	ctx := context.Background()
	p, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	conn, err := pgx.Connect(ctx, p.URL(""))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	var level string
	fmt.Println(conn.QueryRow(ctx, "SHOW wal_level").Scan(&level), level)
	// Output: <nil> logical
}

func ExampleStartKafka() {
	ctx := context.Background()
	k, err := devstack.StartKafka(ctx, devstack.KafkaConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer k.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Addrs()...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()
	fmt.Println(cl.Ping(ctx))
	// Output: <nil>
}

func ExampleStartRegistry() {
	ctx := context.Background()
	r, err := devstack.StartRegistry(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	cl, err := sr.NewClient(sr.URLs(r.URL()))
	if err != nil {
		fmt.Println(err)
		return
	}
	made, err := cl.CreateSchema(ctx, "order.payment.commands-value", sr.Schema{Schema: `{"type":"string"}`})
	fmt.Println(made.Version, err)
	// Output: 1 <nil>
}
