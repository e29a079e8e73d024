// Package order is the service that takes orders and orchestrates them: payment, inventory, shipping, and when one of them
// refuses, the compensation of the earlier steps, in reverse. order.saga.json declares that, and package coordinator runs it.
//
//	POST /orders ─► orders row + saga + ChargePayment ───────────────────────────────► payment
//	                        ▲ one transaction                                             │
//	hop's event ─► coordinator: saga.Decide ─► saga, log, next command ─► next hop ◄──────┘
//
// The other services only consume commands and answer with events: they know nothing of each other, and this one knows nothing of
// their work.
//
//	failure                                 effect on the order
//	an event comes twice, or late           none
//	two events of one order at once         the second one is decided after the first
//	a crash before the commit               the event comes again
//	a hop runs out of retries, or this one  parked, logged as an error; resumed when the dead letter is redriven, or by an
//	does over an answer                     operator
//	a hop does not answer for 30 minutes    the steps that are done are compensated; from shipping: parked
//
// In a choreography there is no coordinator: this service emits that an order was placed, each service reacts to the events of
// others as its reactions.json declares, and this one consumes the events that end the order.
//
//	POST /orders ─► orders row + OrderPlaced ─► payment ─► inventory ─► shipping ─► OrderShipped   ─► completed
//	                                   PaymentRefused ◄─┘      │            │
//	                                 PaymentRefunded ◄─ payment ◄───────────┘ a refusal goes back  ─► cancelled
//
//	failure                                 effect on the order
//	an event comes twice                    none
//	a hop runs out of retries               parked, by its exhausted event; resumed when the dead letter is redriven
//	this service does over an end           parked, by its own dead letter; resumed likewise
//	no end after 30 minutes                 parked, and OrderLate is emitted; it may still end
package order

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-go/troupe/internal/demo"
)

// hop is this service's hop. Its events notify the customer of the order's end.
const hop = "order"

// scope is the instrumentation scope of the spans that no handler makes.
const scope = "github.com/troupe-go/troupe/internal/demo/order"

type service struct {
	pool  *pgxpool.Pool
	begin func(context.Context, pgx.Tx, Order) error // begins the flow of a new order, in tx
	spans trace.Tracer
	log   zerolog.Logger
}

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg demo.Config) error {
	h := demo.Hop{
		Name: hop, Schema: schema, Reactions: Reactions,
		API: func(ctx context.Context, with demo.Parts) (http.Handler, error) {
			if with.Flow != nil {
				return (&service{pool: with.Pool, begin: registerReactions(with.Flow), spans: with.Tracers.Tracer(scope), log: cfg.Log}).api(), nil
			}
			return orchestrate(ctx, cfg, with)
		},
	}
	if cfg.Style == demo.Choreography {
		h.Schema += choreographySQL
	}
	return h.Run(ctx, cfg)
}
