package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

const (
	perRound = 100 // items of one saga, or sagas with one step
	rounds   = 20  // of each kind, in turns
)

// Seated answers BookSeat.
type (
	Seated   struct{}
	BookSeat struct {
		ID string `json:"id"`
	}
)

// seats returns a saga that books one seat, and one that books a seat for each element of a list.
func seats() (plain, each *saga.Definition, err error) {
	seat := saga.Step{
		Name: "seat", Command: &saga.Command{Hop: "seats", Type: "BookSeat", Input: saga.Mapping{"id": "data.id"}},
		Success: []saga.Answer{{Event: "Seated"}}, Irreversible: "a measurement",
	}
	spec := saga.Spec{Saga: "plain", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "list": saga.Any}, Steps: []saga.Step{seat}}
	if plain, err = saga.Define(spec); err != nil {
		return nil, nil, err
	}
	seat.ForEach = &saga.ForEach{List: "data.list", As: "x", Max: perRound}
	spec.Saga, spec.Steps = "each", []saga.Step{seat}
	each, err = saga.Define(spec)
	return plain, each, err
}

// items compares one saga of 100 items with 100 sagas of one step: the number of messages that are sent and answered in a
// second. In each round the sagas are started in one transaction, and nothing else runs. The two kinds take turns.
func (s *stage) items(ctx context.Context) (string, error) {
	var lines []string
	for _, kind := range []string{"kafka", "local"} {
		line, err := s.itemsOf(ctx, kind)
		if err != nil {
			return "", fmt.Errorf("%s: %w", kind, err)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; "), nil
}

func (s *stage) itemsOf(ctx context.Context, kind string) (_ string, err error) {
	y, err := s.prepare(ctx, kind)
	defer func() { err = errors.Join(err, y.Close()) }()
	if err != nil {
		return "", err
	}
	plain, each, err := seats()
	if err != nil {
		return "", err
	}
	pool := y.pools[len(y.pools)-1]
	hop, err := y.participant("seats", pool)
	if err != nil {
		return "", err
	}
	participant.Handle(hop, effect[BookSeat](Seated{}))
	p, err := y.participant("seating", y.order)
	if err != nil {
		return "", err
	}
	ended := make(chan struct{}, perRound)
	y.coordinator, err = coordinator.New(ctx, coordinator.Config{
		Participant: p, Pool: y.order, Definitions: []*saga.Definition{plain, each},
		Decided: func(d coordinator.Decided) {
			if d.State.Ended() {
				ended <- struct{}{}
			}
		},
	})
	if err != nil {
		return "", err
	}
	if err := errors.Join(y.runHop(hop, pool), y.runHop(p, y.order)); err != nil {
		return "", err
	}
	took := make(map[string][]time.Duration)
	for n := range rounds + 1 {
		for _, name := range []string{"plain", "each"} {
			one, err := y.round(ctx, name, ended)
			if err != nil {
				return "", err
			}
			if n > 0 { // the first round makes topics and connections
				took[name] = append(took[name], one)
			}
		}
	}
	perSecond := func(name string) float64 {
		slices.Sort(took[name])
		return 2 * perRound / took[name][rounds/2].Seconds()
	}
	return fmt.Sprintf("%s: 100 sagas %.0f messages/s, 100 items %.0f messages/s (%.2f)", kind, perSecond("plain"), perSecond("each"),
		perSecond("each")/perSecond("plain")), nil
}

// round starts sagas and returns how long they take to end.
func (y *system) round(ctx context.Context, name string, ended <-chan struct{}) (time.Duration, error) {
	n, list := perRound, []any{}
	if name == "each" {
		n = 1
		for i := range perRound {
			list = append(list, i)
		}
	}
	began := time.Now()
	err := pgx.BeginFunc(ctx, y.order, func(tx pgx.Tx) error {
		for range n {
			if _, err := y.coordinator.Start(ctx, tx, name, map[string]any{"id": nextKey(), "list": list}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for range n {
		select {
		case <-ended:
		case <-time.After(patience):
			return 0, fmt.Errorf("sagas %s have not ended after %s", name, patience)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return time.Since(began), nil
}
