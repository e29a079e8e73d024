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

// A way is one way of consuming, and the results of its rounds.
type way struct {
	name string
	task task
	done []result
}

// measureBatched compares participants with the floor in batches.
func measureBatched(ctx context.Context, s *stage) error {
	rate, err := s.compare(ctx, s.batched, task{Batch: 100, Concurrency: partitions})
	s.batches = rate
	return err
}

// measureSingle compares them with one message per transaction, of sixteen concurrent keys.
func measureSingle(ctx context.Context, s *stage) error {
	rate, err := s.compare(ctx, s.single, task{Batch: 1, Concurrency: 16})
	if err == nil && s.batches > 0 {
		fmt.Printf("batches of 100 are %.1f x as fast\n", s.batches/rate)
	}
	return err
}

// compare runs the floor and a participant, with statements that are queued and with statements that are waited for. It returns
// the participant's rate with queued statements.
func (s *stage) compare(ctx context.Context, messages int, k task) (rate float64, err error) {
	from, err := s.fill(ctx, partitions, messages, keys, 0)
	if err != nil {
		return 0, err
	}
	defer s.remove(from)
	heading()
	for _, wait := range []bool{false, true} {
		ways := []way{{name: byHand}, {name: byTroupe}}
		for i := range ways {
			ways[i].task = k
			ways[i].task.Kind, ways[i].task.Wait = ways[i].name, wait
			ways[i].name += map[bool]string{false: ", queued", true: ", Exec"}[wait]
		}
		if err := s.alternate(ctx, from, ways); err != nil {
			return 0, err
		}
		hand, troupe := median(ways[0].done), median(ways[1].done)
		fmt.Printf("of the floor: %.2f of its rate (best rounds: %.2f), %.2f x its processor time with Postgres's, %.2f x its allocations\n",
			troupe.rate()/hand.rate(), best(ways[1].done)/best(ways[0].done),
			(troupe.CPU+troupe.postgresCPU)/(hand.CPU+hand.postgresCPU), float64(troupe.Mallocs)/float64(hand.Mallocs))
		if !wait {
			rate = troupe.rate()
		}
	}
	return rate, nil
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

// consume runs a task on all of a topic, and checks the effects. A tenth of the topic is warm-up.
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

// check returns an error unless every message took effect once: one deposit each, one event each.
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
	fmt.Printf("%-42s %10s %6s %9s %9s %9s %9s %8s\n", "", "messages/s", "batch", "cpu us", "pg cpu us", "allocs", "bytes", "peak MB")
}

// show prints the results of a run: all except the rate and the peak per message.
func show(name string, r result) {
	n := float64(r.Messages)
	fmt.Printf("%-42s %10.0f %6.1f %9.1f %9.1f %9.1f %9.0f %8.1f\n", name, r.rate(), r.Batch, 1e6*r.CPU/n, 1e6*r.postgresCPU/n,
		float64(r.Mallocs)/n, float64(r.Bytes)/n, r.PeakMB)
}

// median takes the median of each figure separately.
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

// best returns the highest rate: the closest to a machine without other load.
func best(all []result) (rate float64) {
	for _, r := range all {
		rate = max(rate, r.rate())
	}
	return rate
}

func middle[T any](all []T, figure func(T) float64) float64 {
	figures := make([]float64, len(all))
	for i, of := range all {
		figures[i] = figure(of)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}
