package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

// ways is the number of events that meet in a saga.
const ways = 10

// Arrived is one of these events.
type Arrived struct{}

func tenWays() (*saga.Definition, error) {
	spec := saga.Spec{Saga: "join", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String}}
	meet := saga.Step{Name: "meet"}
	for n := range ways {
		name := fmt.Sprint("way-", n)
		spec.Steps = append(spec.Steps, saga.Step{Name: name, Success: []saga.Answer{{Hop: name, Event: "Arrived"}}})
		meet.Needs = append(meet.Needs, name)
	}
	spec.Steps = append(spec.Steps, meet)
	return saga.Define(spec)
}

// join starts sagas, sends ten events for each of them, all at once in any order, and counts the transactions that were rolled
// back and tried again: first with one event in each, then with many.
func (s *stage) join(ctx context.Context) (string, error) {
	var lines []string
	for _, batch := range []int{1, 100} {
		line, err := s.joinBy(ctx, batch)
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; "), nil
}

func (s *stage) joinBy(ctx context.Context, batch int) (_ string, err error) {
	y, err := s.prepare(ctx, "kafka")
	defer func() { err = errors.Join(err, y.Close()) }()
	if err != nil {
		return "", err
	}
	d, err := tenWays()
	if err != nil {
		return "", err
	}
	var transactions, repeated atomic.Int64
	p, err := participant.New(participant.Config{
		Pool: y.order, Brokers: s.Kafka.Addrs(), Hop: topics.MustHop(y.Flow, "join"), Batch: batch, Concurrency: ways, Partitions: 1,
		Hooks: participant.Hooks{Transaction: func(ctx context.Context, _ []participant.Delivery) (context.Context, func(error)) {
			return ctx, func(err error) {
				transactions.Add(1)
				if err != nil {
					repeated.Add(1)
				}
			}
		}},
	})
	if err != nil {
		return "", err
	}
	y.coordinator, err = coordinator.New(ctx, coordinator.Config{Participant: p, Pool: y.order, Definitions: []*saga.Definition{d}})
	if err != nil {
		return "", err
	}
	if err := y.arrive(ctx, p.Outbox(), s.joins); err != nil {
		return "", err
	}
	began := time.Now()
	if err := y.runHop(p, y.order); err != nil {
		return "", err
	}
	if err := harness.UntilCount(ctx, y.order, patience, "SELECT count(*) FROM troupe.sagas WHERE status = 'completed'", s.joins); err != nil {
		return "", err
	}
	again, all := repeated.Load(), transactions.Load()
	return fmt.Sprintf("%d at once: %d of %d transactions repeated (%.2f %%), %.0f events/s", batch, again, all,
		100*float64(again)/float64(all), float64(s.joins*ways)/time.Since(began).Seconds()), nil
}

// arrive starts n sagas, and sends the events that they wait for in random order.
func (y *system) arrive(ctx context.Context, out *outbox.Outbox, n int) error {
	return pgx.BeginFunc(ctx, y.order, func(tx pgx.Tx) error {
		var events []outbox.Entry
		for range n {
			key := nextKey()
			if _, err := y.coordinator.Start(ctx, tx, "join", map[string]any{"id": key}); err != nil {
				return err
			}
			for way := range ways {
				topic := topics.MustHop(y.Flow, fmt.Sprint("way-", way)).Events()
				events = append(events, outbox.Entry{Topic: topic, Key: key, Body: Arrived{}})
			}
		}
		rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		return out.Write(ctx, tx, events...)
	})
}
