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
//
// In the other style nobody decides for others: this service says that an order was placed, each service reacts to the events
// of others as its reactions.json says, and this one hears how it ended.
//
//	POST /orders ─► orders row + OrderPlaced ─► payment ─► inventory ─► shipping ─► OrderShipped   ─► completed
//	                                   PaymentRefused ◄─┘      │            │
//	                                 PaymentRefunded ◄─ payment ◄───────────┘ a refusal goes back  ─► cancelled
//
//	what happens                            what becomes of the order
//	an event comes twice                    nothing
//	a hop runs out of retries               parked, by its exhausted event; taken up when the dead letter is redriven
//	this service does over an end           parked, by its own dead letter, likewise
//	no end after 30 minutes                 parked, and OrderLate says so; it may still end
package order

import (
	"context"
	_ "embed"
	"net/http"

	"github.com/jackc/pgx/v5"
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
	begin func(context.Context, pgx.Tx, Order) error // a new order's flow, in tx
	log   zerolog.Logger
}

// Run is the service, until ctx ends.
func Run(ctx context.Context, cfg demo.Config) error {
	h := demo.Hop{
		Name:      own,
		Schema:    schema,
		Reactions: Reactions,
		Handlers: func(ctx context.Context, with demo.Parts) (http.Handler, error) {
			if with.Flow != nil {
				return (&service{pool: with.Pool, begin: listen(with.Flow), log: cfg.Log}).api(), nil
			}
			return orchestrate(ctx, cfg, with)
		},
	}
	if cfg.Style == demo.Choreography {
		h.Schema += choreographySQL
	}
	return h.Run(ctx, cfg)
}

// orchestrate makes the service the coordinator of orders.
func orchestrate(ctx context.Context, cfg demo.Config, with demo.Parts) (http.Handler, error) {
	measured, err := sagas.New(sagas.Config{Meters: with.Meters})
	if err != nil {
		return nil, err
	}
	s, c, err := open(ctx, measured.Instrument(coordinator.Config{
		Participant: with.Participant, Pool: with.Pool, Schemas: with.Codec, Log: cfg.Log,
		Parked: func(s saga.State, reason string) {
			with.Alert(alert.Incident{Kind: "parked saga", Where: s.Saga, Subject: own, Key: s.Key, ID: s.ID(), Text: reason})
		},
	}))
	if err != nil {
		return nil, err
	}
	return s.api(), measured.Observe(c)
}

// open makes cfg's participant the coordinator of orders. Its Run is not needed: no step awaits an event, so none is stashed.
func open(ctx context.Context, cfg coordinator.Config) (*service, *coordinator.Coordinator, error) {
	d, err := saga.Parse(definition)
	if err != nil {
		return nil, nil, err
	}
	cfg.Definitions = []*saga.Definition{d}
	c, err := coordinator.New(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	begin := func(ctx context.Context, tx pgx.Tx, o Order) error {
		_, err := c.Start(ctx, tx, sagaName, o.data())
		return err
	}
	return &service{pool: cfg.Pool, begin: begin, log: cfg.Log}, c, nil
}
