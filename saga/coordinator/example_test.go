package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

// A customer has cancelled: an operator previews the action first.
func ExampleDesk() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, end, err := anOrderUnderWay(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	desk, err := coordinator.NewDesk(coordinator.DeskConfig{Pool: pool}) // with a schemas.Codec where payloads are Avro
	if err != nil {
		fmt.Println(err)
		return
	}
	list, _, err := desk.List(ctx, coordinator.Filter{Saga: "order", Statuses: []saga.Status{saga.Running}}, coordinator.Page{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(list[0].ID, list[0].Status, list[0].Steps)

	_, err = desk.Preview(ctx, "order/o-1", saga.Event{Kind: saga.ActRetry, Step: "payment", Actor: "ann", Reason: "ticket 4711"})
	fmt.Println(errors.Is(err, coordinator.ErrRefused), err)
	cancel := saga.Event{Kind: saga.ActCompensate, Actor: "ann", Reason: "ticket 4711: cancelled"}
	would, err := desk.Preview(ctx, "order/o-1", cancel)
	fmt.Println(would.State.Status, len(would.Effects.Commands), err)
	did, err := desk.Act(ctx, "order/o-1", cancel)
	fmt.Println(did.State.Status, err)
	r, err := desk.Replay(ctx, "order/o-1")
	fmt.Println(r.Events, r.Difference == "", err)
	// Output:
	// order/o-1 running [payment]
	// true saga order/o-1: refused: step payment is intent: only a failed step can be retried
	// compensating 0 <nil>
	// compensating <nil>
	// 2 true <nil>
}

func anOrderUnderWay(ctx context.Context) (pool *pgxpool.Pool, end func(), err error) {
	pool, end, err = playground(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err = begin(ctx, pool); err != nil {
		end()
		return nil, nil, err
	}
	return pool, end, nil
}

// playground is an empty database with Troupe's tables.
func playground(ctx context.Context) (pool *pgxpool.Pool, end func(), err error) {
	db, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, err
	}
	end = func() {
		if pool != nil {
			pool.Close()
		}
		_ = db.Close()
	}
	url, err := db.CreateDatabase(ctx, "orders", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return pool, end, nil
}

func begin(ctx context.Context, pool *pgxpool.Pool) error {
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
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := c.Start(ctx, tx, "order", anOrder)
		return err
	})
}
