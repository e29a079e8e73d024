package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/harness"
)

// insertRate returns the rows a second that the writers commit, one in a transaction, each as fast as it can, while r runs, or,
// if r is nil, without a relay.
func (s *stage) insertRate(ctx context.Context, r relayer, into table, tcp bool) (rate float64, err error) {
	l := s.load(1 << 30)
	b, err := s.newBed(ctx, tcp, l.topics, r, into)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if r != nil {
		p, err := b.startReady(ctx, r)
		if err != nil {
			return 0, err
		}
		defer p.stop()
	}
	insert := b.insert(into)
	var next, counted atomic.Int64
	began := time.Now()
	from, until := began.Add(s.warm), began.Add(s.warm+s.time)
	running, ctx := errgroup.WithContext(ctx)
	for range writers {
		running.Go(func() error {
			conn, err := pgx.Connect(ctx, b.socketURL())
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for time.Now().Before(until) {
				i := int(next.Add(1) - 1)
				if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return insert(ctx, tx, l, i) }); err != nil {
					return err
				}
				if now := time.Now(); now.After(from) && now.Before(until) {
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
func (s *stage) measureWriters(ctx context.Context) error {
	fmt.Printf("%d writers, one row in a transaction, as fast as they can, for %s\n", writers, s.time)
	writersTable.Heading()
	var all []*harness.Contender[writing]
	var tables []string // of the contenders
	add := func(name string, r relayer, into table, tcp bool) {
		all = append(all, &harness.Contender[writing]{Name: name, Run: func(ctx context.Context) (writing, error) {
			rate, err := s.insertRate(ctx, r, into, tcp)
			return writing{rate: rate}, err
		}})
		tables = append(tables, into.name.Sanitize())
	}
	add("nobody, Troupe's table", nil, troupeTable, false)
	for _, c := range s.contenders(s.relaying()) {
		r := s.relayers[c.way].throughput
		if c.way == debeziumWay {
			add("nobody, Debezium's table", nil, debeziumTable, false)
		}
		add(c.name, r, r.table(), c.tcp)
	}
	if err := writersTable.Compare(ctx, s.rounds, all); err != nil {
		return err
	}
	alone := make(map[string]float64) // by table; the rate without a relay comes before the others
	for i, c := range all {
		m := writersTable.Median(c.Results)
		if alone[tables[i]] == 0 {
			alone[tables[i]] = m.rate
		}
		m.ofAlone = m.rate / alone[tables[i]]
		writersTable.Show("median "+c.Name, m)
	}
	return nil
}
