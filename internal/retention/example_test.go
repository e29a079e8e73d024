package retention_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/migrations"
)

// Partitions of ten positions, and when each is dropped.
func ExampleDropper_Drop() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, end, err := throwAway(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	exec := func(sql string) {
		if _, err := pool.Exec(ctx, sql); err != nil {
			fmt.Println(err)
		}
	}
	exec("SELECT setval('troupe.outbox_position_seq', 19999999)")
	if _, err := (retention.Partitions{Size: 10}).Ensure(ctx, pool); err != nil {
		fmt.Println(err)
		return
	}
	dropper, err := retention.New(retention.Config{Pool: pool})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dropper.Close()
	drop := func(published retention.Published) {
		d, err := dropper.Drop(ctx, published)
		if err != nil {
			fmt.Println(err)
		}
		for _, name := range d.Dropped {
			fmt.Println("dropped", name)
		}
		for _, k := range d.Kept {
			why, _, _ := strings.Cut(k.Why, " until ")
			fmt.Printf("kept %s: %s\n", k.Name, why)
		}
	}
	drop("") // before the first row

	exec("INSERT INTO troupe.outbox (topic, type) SELECT 't', 'T' FROM generate_series(1, 25)")
	drop("")

	var published retention.Published // as a relay would confirm it
	if err := pool.QueryRow(ctx, "SELECT pg_current_snapshot()::text").Scan(&published); err != nil {
		fmt.Println(err)
	}
	exec(`INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'parked', 8, 8, 'message too large' FROM troupe.outbox WHERE position = 20000003`)
	drop(published)

	exec("DELETE FROM troupe.outbox_failures")
	exec("UPDATE troupe.outbox_partitions SET done_at = clock_timestamp() - interval '1 hour' WHERE name = 'outbox_20000010'")
	drop(published)
	// Output:
	// dropped outbox_0
	// dropped outbox_5000000
	// dropped outbox_10000000
	// dropped outbox_15000000
	// kept outbox_20000000: position 20000000 is not published
	// kept outbox_20000010: position 20000010 is not published
	// kept outbox_20000000: 1 of its rows are in troupe.outbox_failures
	// kept outbox_20000010: its rows are published and kept
	// dropped outbox_20000010
	// kept outbox_20000000: its rows are published and kept
}

// throwAway returns a database on a server that ends with it.
func throwAway(ctx context.Context) (pool *pgxpool.Pool, end func(), err error) {
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, err
	}
	if err := migrations.Up(ctx, server.URL("")); err != nil {
		server.Close()
		return nil, nil, err
	}
	pool, err = pgxpool.New(ctx, server.URL(""))
	if err != nil {
		server.Close()
		return nil, nil, err
	}
	return pool, func() { pool.Close(); server.Close() }, nil
}
