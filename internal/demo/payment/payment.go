// Package payment is the service that charges customers and refunds them.
//
//	ChargePayment ─► PaymentCharged, or PaymentRefused above the customer's credit limit
//	RefundPayment ─► PaymentRefunded
//
// Without a coordinator it charges when an order is placed, and refunds when inventory refuses or has released stock.
//
// Every change of a balance has a row in the ledger, in the same statement: a repeated command finds the row, changes nothing and
// gets the same answer. A free order is charged nothing, and has its row. A refund without a charge inserts an empty row, and the
// charge that comes after it is refused.
package payment

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/participant"
)

const hop = "payment"

var (
	//go:embed schema.sql
	schema string
	// Reactions is the service's declaration for the flow without a coordinator.
	//go:embed reactions.json
	Reactions []byte
)

type service struct{ cfg demo.Config }

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg demo.Config) error {
	s := service{cfg}
	return demo.Hop{Name: hop, Schema: schema, Reactions: Reactions, Handle: s.register, React: s.react}.Run(ctx, cfg)
}

// register registers the handlers of the coordinator's commands.
func (s service) register(p *participant.Participant) {
	participant.Handle(p, s.charge)
	participant.Handle(p, s.refund)
}

func (s service) charge(ctx context.Context, tx pgx.Tx, c participant.Command[messages.ChargePayment]) (participant.Outcome, error) {
	a, err := lockAccount(ctx, tx, c.Body)
	if err != nil {
		return participant.Outcome{}, err
	}
	switch {
	case a.paymentID != "":
		return charged(c.Body, a.paymentID), nil
	case a.refunded:
		return refused(c.Body, "the order was cancelled"), nil
	case s.cfg.Refuses(c.Body.OrderID, hop):
		return refused(c.Body, "declined by the bank"), nil
	case c.Body.AmountCents > a.credit:
		return refused(c.Body, "credit limit"), nil
	}
	id, err := charge(ctx, tx, c.Message.IdempotencyKey, c.Body)
	return charged(c.Body, id), err
}

func (s service) refund(ctx context.Context, tx pgx.Tx, c participant.Command[messages.RefundPayment]) (participant.Outcome, error) {
	refunded, err := refund(ctx, tx, c.Message.IdempotencyKey, c.Body)
	return participant.Succeed(refunded), err
}

func charged(c messages.ChargePayment, paymentID string) participant.Outcome {
	return participant.Succeed(messages.PaymentCharged{OrderID: c.OrderID, PaymentID: paymentID, AmountCents: c.AmountCents})
}

func refused(c messages.ChargePayment, reason string) participant.Outcome {
	return participant.Refuse(messages.PaymentRefused{OrderID: c.OrderID, Reason: reason})
}
