package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/bench/harness"
)

const (
	partitions = 8
	keys       = 10_000
)

// table prints runs: all figures except the rate, the batch and the peak per message.
var table = harness.Table[result]{Width: 42, Columns: []harness.Column[result]{
	{Head: "messages/s", Width: 10, Figure: func(r *result) *float64 { return &r.Seconds }, Shown: result.rate},
	{Head: "batch", Width: 6, Decimals: 1, Figure: func(r *result) *float64 { return &r.Batch }},
	{Head: "cpu us", Width: 9, Decimals: 1, Figure: func(r *result) *float64 { return &r.CPU }, Shown: func(r result) float64 { return 1e6 * r.CPU / float64(r.Messages) }},
	{Head: "pg cpu us", Width: 9, Decimals: 1, Figure: func(r *result) *float64 { return &r.postgresCPU }, Shown: func(r result) float64 { return 1e6 * r.postgresCPU / float64(r.Messages) }},
	{Head: "allocs", Width: 9, Decimals: 1, Figure: func(r *result) *float64 { return &r.Mallocs }, Shown: func(r result) float64 { return r.Mallocs / float64(r.Messages) }},
	{Head: "bytes", Width: 9, Figure: func(r *result) *float64 { return &r.Bytes }, Shown: func(r result) float64 { return r.Bytes / float64(r.Messages) }},
	{Head: "peak MB", Width: 8, Decimals: 1, Figure: func(r *result) *float64 { return &r.PeakMB }},
}}

// compare runs the ways without a line for each result.
func (s *stage) compare(ctx context.Context, all ...*harness.Contender[result]) error {
	return harness.Compare(ctx, s.rounds, all, func(string, result) error { return nil })
}

// measureBatched compares participants with the floor in batches.
func (s *stage) measureBatched(ctx context.Context) (err error) {
	s.batches, err = s.againstFloor(ctx, s.batched, task{Batch: 100, Concurrency: partitions})
	return err
}

// measureSingle compares them with one message per transaction, of sixteen concurrent keys.
func (s *stage) measureSingle(ctx context.Context) error {
	rate, err := s.againstFloor(ctx, s.single, task{Batch: 1, Concurrency: 16})
	if err == nil && s.batches > 0 {
		fmt.Printf("batches of 100 are %.1f x as fast\n", s.batches/rate)
	}
	return err
}

// againstFloor runs the floor and a participant, with statements that are queued and with statements that are waited for. It returns
// the participant's rate with queued statements.
func (s *stage) againstFloor(ctx context.Context, messages int, k task) (rate float64, err error) {
	from, err := s.fill(ctx, messages, 0)
	if err != nil {
		return 0, err
	}
	defer s.remove(from)
	table.Heading()
	for _, k.Wait = range []bool{false, true} {
		hand, troupe := s.way(from, k, byHand), s.way(from, k, byTroupe)
		all := []*harness.Contender[result]{hand, troupe}
		if err := table.Compare(ctx, s.rounds, all); err != nil {
			return 0, err
		}
		if s.rounds > 1 {
			table.Medians(all)
		}
		h, t := table.Median(hand.Results), table.Median(troupe.Results)
		fmt.Printf("of the floor: %.2f of its rate (best rounds: %.2f), %.2f x its processor time with Postgres's, %.2f x its allocations\n",
			t.rate()/h.rate(), best(troupe.Results)/best(hand.Results), (t.CPU+t.postgresCPU)/(h.CPU+h.postgresCPU), t.Mallocs/h.Mallocs)
		if !k.Wait {
			rate = t.rate()
		}
	}
	return rate, nil
}

// way returns a way of consuming a topic, each time on a database of its own.
func (s *stage) way(from *filled, k task, kind string) *harness.Contender[result] {
	k.Kind = kind
	return &harness.Contender[result]{
		Name: kind + map[bool]string{false: ", queued", true: ", Exec"}[k.Wait],
		Run:  func(ctx context.Context) (result, error) { return s.consume(ctx, from, k) },
	}
}

// consume runs a task on all of a topic, and checks the effects. A tenth of the topic is warm-up.
func (s *stage) consume(ctx context.Context, from *filled, k task) (r result, err error) {
	y := s.NewSystem(ctx)
	defer func() { err = errors.Join(err, y.Close()) }()
	if k.URL, err = y.Database(ctx, ""); err != nil {
		return r, err
	}
	return s.consumeInto(ctx, from, k)
}

// consumeInto runs a task on an existing database.
func (s *stage) consumeInto(ctx context.Context, from *filled, k task) (r result, err error) {
	k.Hop, k.Partitions, k.Group = from.hop.String(), from.partitions, s.Name("group")
	good := from.messages - from.failing
	k.Skip = good / 10
	k.Messages = good - k.Skip
	if r, err = s.run(ctx, k); err != nil {
		return r, err
	}
	return r, check(ctx, k.URL, good)
}

// check returns an error unless every message took effect once: one deposit each, one event each.
func check(ctx context.Context, url string, messages int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var deposits, events int
	const effects = `SELECT (SELECT coalesce(sum(deposits), 0) FROM accounts),
		(SELECT count(*) FROM troupe.outbox WHERE headers ->> 'ce_outcome' = 'success')`
	if err := conn.QueryRow(ctx, effects).Scan(&deposits, &events); err != nil {
		return err
	}
	if deposits != messages || events != messages {
		return fmt.Errorf("%d messages have made %d deposits and %d events", messages, deposits, events)
	}
	return nil
}

// best returns the highest rate: the closest to a machine without other load.
func best(all []result) (rate float64) {
	for _, r := range all {
		rate = max(rate, r.rate())
	}
	return rate
}
