// Package entstore is the payment service with ent.
package entstore

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/troupe-go/troupe/examples/services"
	"github.com/troupe-go/troupe/examples/services/entstore/ent"
	"github.com/troupe-go/troupe/examples/services/entstore/ent/limit"
	"github.com/troupe-go/troupe/examples/services/entstore/ent/payment"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/participant/sqltx"
)

// A driver runs all statements in one transaction. For some updates ent begins its own transaction: Tx returns the existing one.
type driver struct{ *entsql.Driver }

func (d driver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// in returns a client that runs in tx.
func in(tx *sql.Tx) *ent.Client {
	return ent.NewClient(ent.Driver(driver{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})}))
}

// Register registers the service's handler. receipts is the topic of the hop that sends receipts.
func Register(p *participant.Participant, receipts string) {
	out := p.Outbox()
	sqltx.Handle(p, func(ctx context.Context, tx *sql.Tx, c participant.Command[services.ChargePayment]) (participant.Outcome, error) {
		client := in(tx)
		left, err := client.Limit.Query().Where(limit.ID(c.Body.Customer)).ForUpdate().Only(ctx)
		if ent.IsNotFound(err) || err == nil && left.CentsLeft < c.Body.Cents {
			return participant.Refuse(services.OverLimit()), nil
		}
		if err != nil {
			return participant.Outcome{}, err
		}
		charged, err := client.Payment.Query().Where(payment.ID(c.Body.OrderID)).Exist(ctx)
		if err != nil {
			return participant.Outcome{}, err
		}
		if !charged { // not the same order in another message
			err := client.Payment.Create().SetID(c.Body.OrderID).SetCustomer(c.Body.Customer).SetCents(c.Body.Cents).Exec(ctx)
			if err != nil {
				return participant.Outcome{}, err
			}
			if err := client.Limit.UpdateOneID(c.Body.Customer).AddCentsLeft(-c.Body.Cents).Exec(ctx); err != nil {
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
