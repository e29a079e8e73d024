// Command order-on-postgres is an order flow that needs nothing but Postgres: a coordinator and three services in one
// database, which take their messages from a table instead of from Kafka. It places four orders, of which one is completed,
// two are compensated and one waits for an operator, and prints their ends. A second run on the same database places none
// twice, and continues with the unfinished ones.
//
// Everything is as it is over Kafka, but for participant.Config.Local.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
)

//go:embed schema.sql
var schema string

var orders = []Order{
	{ID: "o-1", Book: 1, Copies: 2, Cents: 30_00, Address: "Lisbon"},
	{ID: "o-2", Book: 1, Copies: 3, Cents: 45_00, Address: "Moon"},
	{ID: "o-3", Book: 2, Copies: 9, Cents: 900_00, Address: "Lima"},
	{ID: "o-4", Book: 7, Copies: 1, Cents: 12_00, Address: "Lagos"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "order-on-postgres:", err)
		os.Exit(1)
	}
}

// start takes the database of DATABASE_URL, or one that is gone afterwards.
func start(ctx context.Context) error {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		db, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		if url, err = db.CreateDatabase(ctx, "orders", ""); err != nil {
			return err
		}
	}
	return run(ctx, url, os.Stdout)
}

// run serves until every order has come to rest, and says how.
func run(ctx context.Context, url string, to io.Writer) error {
	pool, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	log := zerolog.Nop() // what goes wrong here is meant to, and reported
	own, err := serve(pool, "order", log)
	if err != nil {
		return err
	}
	sagas, err := coordinate(ctx, pool, own)
	if err != nil {
		return err
	}
	services := []*participant.Participant{own}
	for hop, handle := range map[string]func(*participant.Participant){"payment": payment, "inventory": inventory, "shipping": shipping} {
		p, err := serve(pool, hop, log)
		if err != nil {
			return err
		}
		handle(p)
		services = append(services, p)
	}

	serving, stop := context.WithCancel(ctx)
	defer stop()
	running, serving := errgroup.WithContext(serving)
	for _, p := range services {
		running.Go(func() error { return p.Run(serving) })
	}
	running.Go(func() error {
		defer stop()
		for _, o := range orders {
			if err := place(serving, pool, sagas, o); err != nil {
				return err
			}
		}
		return rest(serving, pool)
	})
	if err := running.Wait(); err != nil {
		return err
	}
	return report(ctx, pool, to)
}

// open makes the tables where they are missing.
func open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	if err := migrations.Up(ctx, url); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// rest waits until nothing moves by itself any more.
func rest(ctx context.Context, pool *pgxpool.Pool) error {
	const moving = `
SELECT EXISTS (SELECT FROM troupe.sagas WHERE status IN ('waiting', 'running', 'compensating'))
    OR EXISTS (SELECT FROM troupe.local_work WHERE status IN ('pending', 'in progress'))`
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		var more bool
		if err := pool.QueryRow(ctx, moving).Scan(&more); err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
