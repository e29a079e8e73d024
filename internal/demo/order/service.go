// Package order is the service that takes orders and decides what comes next: payment, inventory, shipping, and when one
// of them refuses, the compensation of those before it, in reverse. order.saga.json declares that, and package coordinator
// runs it.
//
//	POST /orders ─► orders row + saga + ChargePayment ───────────────────────────────► payment
//	                        ▲ one transaction                                             │
//	hop's event ─► coordinator: saga.Decide ─► saga, log, next command ─► next hop ◄──────┘
//
// The other services only consume commands and answer with events: they know nothing of each other, and this one knows
// nothing of their work.
//
//	what happens                            what becomes of the order
//	an event comes twice, or late           nothing
//	two events of one order at once         the second one is decided after the first
//	a crash before the commit               the event comes again
//	a hop runs out of retries, or this one  parked, logged as an error; taken up when the dead letter is redriven, or a
//	does over an answer                     person acts
//	a hop does not answer for 30 minutes    what was done is undone; from shipping: parked
package order

import (
	"context"
	_ "embed"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/alert"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/telemetry/sagas"
)

const (
	own      = "order" // this service's hop, whose events tell the customer how an order ended
	sagaName = "order"
)

//go:embed order.saga.json
var definition []byte

type service struct {
	pool  *pgxpool.Pool
	sagas *coordinator.Coordinator
	log   zerolog.Logger
}

// Run is the service, until ctx ends.
func Run(ctx context.Context, cfg demo.Config) error {
	return demo.Hop{
		Name:   own,
		Schema: schema,
		Handlers: func(ctx context.Context, with demo.Parts) (http.Handler, error) {
			measured, err := sagas.New(sagas.Config{Meters: with.Meters})
			if err != nil {
				return nil, err
			}
			s, err := open(ctx, measured.Instrument(coordinator.Config{
				Participant: with.Participant, Pool: with.Pool, Schemas: with.Codec, Log: cfg.Log,
				Parked: func(s saga.State, reason string) {
					with.Alert(alert.Incident{Kind: "parked saga", Where: s.Saga, Subject: own, Key: s.Key, ID: s.ID(), Text: reason})
				},
			}))
			if err != nil {
				return nil, err
			}
			return s.api(), measured.Observe(s.sagas)
		},
	}.Run(ctx, cfg)
}

// open makes cfg's participant the coordinator of orders. Its Run is not needed: no step awaits an event, so none is stashed.
func open(ctx context.Context, cfg coordinator.Config) (*service, error) {
	d, err := saga.Parse(definition)
	if err != nil {
		return nil, err
	}
	cfg.Definitions = []*saga.Definition{d}
	sagas, err := coordinator.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &service{pool: cfg.Pool, sagas: sagas, log: cfg.Log}, nil
}
