package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

const (
	partitions = 8
	keys       = 10_000
)

// way is one way of consuming, and what its rounds took.
type way struct {
	name string
	task task
	done []result
}

// measureFloor compares participants with the floor, in batches and one by one, with statements queued and waited for.
func measureFloor(ctx context.Context, s *stage) error {
	many, err := s.fill(ctx, partitions, s.batched, keys, 0)
	if err != nil {
		return err
	}
	defer s.remove(many)
	few, err := s.fill(ctx, partitions, s.single, keys, 0)
	if err != nil {
		return err
	}
	defer s.remove(few)
	variants := []struct {
		name  string
		from  *filled
		batch int
		at    int
		wait  bool
	}{
		{"batches of 100, queued", many, 100, partitions, false},
		{"batches of 100, Exec", many, 100, partitions, true},
		{"one by one, queued", few, 1, 16, false},
		{"one by one, Exec", few, 1, 16, true},
	}
	heading()
	var medians []result
	for _, v := range variants {
		ways := make([]way, 2)
		for i, kind := range []string{byHand, byTroupe} {
			ways[i] = way{kind + ", " + v.name, task{Kind: kind, Batch: v.batch, Concurrency: v.at, Wait: v.wait}, nil}
		}
		if err := s.alternate(ctx, v.from, ways); err != nil {
			return err
		}
		medians = append(medians, median(ways[0].done), median(ways[1].done))
	}
	fmt.Println()
	for i, v := range variants {
		fmt.Printf("%-24s %5.2f of the floor's rate, %.2f x its allocations\n", v.name,
			medians[2*i+1].rate()/medians[2*i].rate(), float64(medians[2*i+1].Mallocs)/float64(medians[2*i].Mallocs))
	}
	fmt.Printf("%-24s %5.1f x one by one\n", "batches, queued", medians[1].rate()/medians[5].rate())
	return nil
}

// alternate runs the ways in turn, each time on a database of its own, and prints every run and the medians.
func (s *stage) alternate(ctx context.Context, from *filled, ways []way) error {
	for range s.rounds {
		for i := range ways {
			r, err := s.consume(ctx, from, ways[i].task)
			if err != nil {
				return err
			}
			show(ways[i].name, r)
			ways[i].done = append(ways[i].done, r)
		}
	}
	for _, w := range ways {
		if s.rounds > 1 {
			show("median "+w.name, median(w.done))
		}
	}
	return nil
}

// consume lets a task have all of a topic, and checks the effects. A tenth of it is warming up.
func (s *stage) consume(ctx context.Context, from *filled, k task) (result, error) {
	url, drop, err := s.database(ctx)
	if err != nil {
		return result{}, err
	}
	defer drop()
	k.URL, k.Hop, k.Partitions, k.Group = url, from.hop.String(), from.partitions, s.name("group")
	good := from.messages - from.failing
	k.Skip = good / 10
	k.Messages = good - k.Skip
	r, err := s.run(ctx, k)
	if err != nil {
		return r, err
	}
	return r, check(ctx, url, good)
}

// check says whether every message took effect once: one deposit each, one event each.
func check(ctx context.Context, url string, messages int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var deposits, events int
	const ask = `SELECT (SELECT coalesce(sum(deposits), 0) FROM accounts),
		(SELECT count(*) FROM troupe.outbox WHERE headers ->> 'ce_outcome' = 'success')`
	if err := conn.QueryRow(ctx, ask).Scan(&deposits, &events); err != nil {
		return err
	}
	if deposits != messages || events != messages {
		return fmt.Errorf("%d messages have made %d deposits and %d events", messages, deposits, events)
	}
	return nil
}

func heading() {
	fmt.Printf("%-42s %10s %9s %9s %9s %9s %8s\n", "", "messages/s", "cpu us", "pg cpu us", "allocs", "bytes", "peak MB")
}

// show prints what a run took: all but the rate and the peak per message.
func show(name string, r result) {
	n := float64(r.Messages)
	fmt.Printf("%-42s %10.0f %9.1f %9.1f %9.1f %9.0f %8.1f\n", name, r.rate(), 1e6*r.CPU/n, 1e6*r.postgresCPU/n,
		float64(r.Mallocs)/n, float64(r.Bytes)/n, r.PeakMB)
}

// median is each figure's own.
func median(all []result) result {
	m := all[0]
	m.Seconds = middle(all, func(r result) float64 { return r.Seconds })
	m.CPU = middle(all, func(r result) float64 { return r.CPU })
	m.postgresCPU = middle(all, func(r result) float64 { return r.postgresCPU })
	m.Mallocs = uint64(middle(all, func(r result) float64 { return float64(r.Mallocs) }))
	m.Bytes = uint64(middle(all, func(r result) float64 { return float64(r.Bytes) }))
	m.PeakMB = middle(all, func(r result) float64 { return r.PeakMB })
	return m
}

func middle[T any](all []T, figure func(T) float64) float64 {
	figures := make([]float64, len(all))
	for i, of := range all {
		figures[i] = figure(of)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}
