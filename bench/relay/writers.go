package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// insertRate returns the rows a second that the writers commit, one in a transaction, each as fast as it can, while r runs, or,
// if r is nil, without a relay.
func (s *stage) insertRate(ctx context.Context, r relayer, into table, tcp bool) (rate float64, err error) {
	l := load{rows: 1 << 30, keys: s.keys, topics: s.topics}
	b, err := s.bed(ctx, tcp, l.topics, into)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if r != nil {
		if err := r.prime(ctx, b); err != nil {
			return 0, fmt.Errorf("prime: %w", err)
		}
		p, err := r.start(ctx, b)
		if err != nil {
			return 0, err
		}
		defer p.stop()
		if err := p.ready(ctx); err != nil {
			return 0, err
		}
	}
	insert := b.insert(into)
	var next, counted atomic.Int64
	began := time.Now()
	counts, end := began.Add(s.warm), began.Add(s.warm+s.time)
	running, ctx := errgroup.WithContext(ctx)
	for range writers {
		running.Go(func() error {
			conn, err := pgx.Connect(ctx, b.socketURL())
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for time.Now().Before(end) {
				i := int(next.Add(1) - 1)
				if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return insert(ctx, tx, l, i) }); err != nil {
					return err
				}
				if now := time.Now(); now.After(counts) && now.Before(end) {
					counted.Add(1)
				}
			}
			return nil
		})
	}
	if err := running.Wait(); err != nil {
		return 0, err
	}
	return float64(counted.Load()) / s.time.Seconds(), nil
}

// measureWriters measures how much a running relay slows down the writers.
func measureWriters(ctx context.Context, s *stage) error {
	fmt.Printf("%d writers, one row in a transaction, as fast as they can, for %s\n", writers, s.time)
	fmt.Printf("%-38s %9s %9s\n", "", "rows/s", "of alone")
	type line struct {
		name string
		into table
		run  func(ctx context.Context) (float64, error)
		done []float64
	}
	var lines []*line
	beside := func(name string, r relayer, into table, tcp bool) {
		lines = append(lines, &line{name: name, into: into, run: func(ctx context.Context) (float64, error) {
			return s.insertRate(ctx, r, into, tcp)
		}})
	}
	beside("nobody, Troupe's table", nil, troupeTable, false)
	for _, c := range s.contenders(s.relaying()) {
		r := s.relayers[c.way].throughput
		if c.way == debeziumWay {
			beside("nobody, Debezium's table", nil, debeziumTable, false)
		}
		beside(c.name, r, r.into(), c.tcp)
	}
	for range s.rounds {
		for _, of := range lines {
			rate, err := of.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", of.name, err)
			}
			fmt.Printf("%-38s %9.0f\n", of.name, rate)
			of.done = append(of.done, rate)
		}
	}
	alone := make(map[string]float64) // by table; the rate without a relay comes before the others
	for _, of := range lines {
		rate, table := middle(of.done, func(r float64) float64 { return r }), of.into.name.Sanitize()
		if alone[table] == 0 {
			alone[table] = rate
		}
		fmt.Printf("%-38s %9.0f %9.2f\n", "median "+of.name, rate, rate/alone[table])
	}
	return nil
}
