// Package sqlcsql is the payment service with code that sqlc generated for database/sql.
package sqlcsql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/troupe-go/troupe/examples/services"
	"github.com/troupe-go/troupe/examples/services/sqlcsql/db"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/participant/sqltx"
)

// Register registers the service's handler. receipts is the topic of the hop that sends receipts.
func Register(p *participant.Participant, receipts string) {
	out := p.Outbox()
	sqltx.Handle(p, func(ctx context.Context, tx *sql.Tx, c participant.Command[services.ChargePayment]) (participant.Outcome, error) {
		q := db.New(tx)
		left, err := q.LockLimit(ctx, c.Body.Customer)
		if errors.Is(err, sql.ErrNoRows) || err == nil && left < c.Body.Cents {
			return participant.Refuse(services.OverLimit()), nil
		}
		if err != nil {
			return participant.Outcome{}, err
		}
		charged, err := q.InsertPayment(ctx, db.InsertPaymentParams(c.Body))
		if err != nil {
			return participant.Outcome{}, err
		}
		if charged == 1 { // not the same order in another message
			if err := q.Spend(ctx, db.SpendParams{Customer: c.Body.Customer, Cents: c.Body.Cents}); err != nil {
				return participant.Outcome{}, err
			}
			if err := out.WriteSQL(ctx, tx, outbox.Entry{
				Topic: receipts, Key: c.Body.OrderID, Body: services.SendReceipt{OrderID: c.Body.OrderID, Cents: c.Body.Cents},
			}); err != nil {
				return participant.Outcome{}, err
			}
		}
		return participant.Succeed(services.PaymentCharged{OrderID: c.Body.OrderID}), nil
	})
}
