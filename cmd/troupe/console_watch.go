package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/demo/run"
	"github.com/troupe-go/troupe/internal/flow/watch"
)

// watched is the URL of a watcher's database, whose flows a console shows; "": none.
type watched string

// open returns nil if there is none.
func (w watched) open(ctx context.Context) (*pgxpool.Pool, error) {
	url := cmp.Or(string(w), os.Getenv("TROUPE_WATCH_DATABASE"))
	if url == "" {
		return nil, nil
	}
	config, err := address.ParsePool(url)
	if err != nil {
		return nil, fmt.Errorf("--watch or TROUPE_WATCH_DATABASE: %w", err)
	}
	return newPool(ctx, config, "troupe console", 8)
}

// watchDemo runs a watcher of a choreographed demo, which stores its data in the order service's database, since the demo has no
// other; it returns that database, and nil in an orchestration. Call end when the console has ended.
func watchDemo(ctx context.Context, w run.World) (pool *pgxpool.Pool, end func() error, err error) {
	nothing := func() error { return nil }
	if len(w.Declared) == 0 {
		return nil, nothing, nil
	}
	if pool, err = watched(w.Databases["order"]).open(ctx); err != nil {
		return nil, nothing, err
	}
	watcher, err := watch.New(watch.Config{Pool: pool, Brokers: w.Brokers, Flow: w.Flow, Declared: w.Declared, Log: zerolog.Nop()})
	if err != nil {
		pool.Close()
		return nil, nothing, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	return pool, func() error {
		cancel()
		defer pool.Close()
		return <-ended
	}, nil
}
