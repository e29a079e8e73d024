// Package order is the service that takes orders and decides what comes next: payment, inventory, shipping, and when one
// of them refuses, the compensation of those before it, in reverse.
//
//	POST /orders ─► orders row + ChargePayment ──────────────────────────────────────────► payment
//	                        ▲ one transaction                                                 │
//	hop's event ─► advance (process.go) ─► orders row, history, next command ─► next hop ◄────┘
//
// The other services only consume commands and answer with events: they know nothing of each other, and this one knows
// nothing of their work. Its own decisions are in process.go and nowhere else.
//
//	what happens                             what becomes of the order
//	an event comes twice, or late            nothing
//	two events of one order at once          the second one sees another version, and is decided anew
//	a crash before the commit                the event comes again
//	a hop runs out of retries                parked, logged as an error; taken up when the dead letter is tried again
//	an event of an order that is not there   logged and dropped: an order exists before its first command
package order

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	messages "github.com/troupe-go/troupe/schemas/order"
)

// own is this service's hop. Its events tell the customer how an order ended.
const own = "order"

type service struct {
	cfg  demo.Config
	pool *pgxpool.Pool
	out  *outbox.Outbox
	log  zerolog.Logger
}

// Run is the service, until ctx ends.
func Run(ctx context.Context, cfg demo.Config) error {
	return demo.Hop{
		Name:   own,
		Schema: schema,
		Handlers: func(pool *pgxpool.Pool, p *participant.Participant) http.Handler {
			s := &service{cfg: cfg, pool: pool, out: p.Outbox(), log: cfg.Log}
			on[messages.PaymentCharged](s, p, payment)
			on[messages.PaymentRefused](s, p, payment)
			on[messages.PaymentRefunded](s, p, payment)
			on[messages.StockReserved](s, p, inventory)
			on[messages.StockRefused](s, p, inventory)
			on[messages.StockReleased](s, p, inventory)
			on[messages.OrderShipped](s, p, shipping)
			on[messages.ShippingRefused](s, p, shipping)
			for _, hop := range []string{payment.hop, inventory.hop, shipping.hop, own} {
				participant.On(p, cfg.Hop(hop), s.exhausted)
			}
			return s.api()
		},
	}.Run(ctx, cfg)
}

// on takes every event of type T to its order.
func on[T any](s *service, p *participant.Participant, from step) {
	participant.On(p, s.cfg.Hop(from.hop), func(ctx context.Context, tx pgx.Tx, e participant.Event[T]) error {
		return s.take(ctx, tx, string(e.Message.Key), e.Body, e.Message.Type)
	})
}

// exhausted takes what became a dead letter to its order: a command that its hop gave up, or an answer that this service
// did. The step and its operation stand in the message, as they stood in the command. A dead letter that is itself such
// an event goes no further: it would come back for ever.
func (s *service) exhausted(ctx context.Context, tx pgx.Tx, e participant.Event[participant.Exhausted]) error {
	if e.Body.Type == e.Body.MessageType() {
		return nil
	}
	event := exhausted{
		step: e.Message.SagaStep, operation: e.Message.SagaOperation,
		reason: fmt.Sprintf("%s gave up after %d attempts: %s", e.Body.Handler, e.Body.Attempts, e.Body.Error),
	}
	return s.take(ctx, tx, string(e.Message.Key), event, e.Message.Type)
}

func (s *service) take(ctx context.Context, tx pgx.Tx, orderID string, event any, eventType string) error {
	o, err := read(ctx, tx, orderID)
	if errors.Is(err, pgx.ErrNoRows) {
		s.log.Warn().Str("order", orderID).Str("event", eventType).Msg("event of an unknown order dropped")
		return nil
	}
	if err != nil {
		return err
	}
	return s.decide(ctx, tx, o, event, eventType)
}

// decide writes what advance makes of the order: the row, its history and what follows, in one transaction.
func (s *service) decide(ctx context.Context, tx pgx.Tx, o Order, event any, eventType string) error {
	o, send := advance(o, event)
	if len(o.passed) == 0 {
		return nil
	}
	if err := update(ctx, tx, o, eventType); err != nil {
		return err
	}
	if o.Status == Parked {
		s.log.Error().Str("order", o.ID).Str("state", o.State).Str("reason", o.Reason).Msg("order parked: a person must act")
	}
	if send == nil {
		return nil
	}
	return s.out.Write(ctx, tx, s.entry(o, *send))
}

// entry addresses m. A command's idempotency key differs per order, step and operation, and is the same however often
// it is sent.
func (s *service) entry(o Order, m message) outbox.Entry {
	hop := s.cfg.Hop(m.hop)
	if m.outcome != "" {
		return outbox.Entry{Topic: hop.Events(), Key: o.ID, Body: m.body, Outcome: m.outcome}
	}
	return outbox.Entry{
		Topic: hop.Commands(), Key: o.ID, Body: m.body, IdempotencyKey: o.ID + "/" + m.hop + "/" + m.operation,
		SagaID: o.ID, SagaStep: m.hop, SagaOperation: m.operation,
	}
}
