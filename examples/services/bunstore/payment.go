// Package bunstore is the payment service with bun.
package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/troupe-go/troupe/examples/services"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/participant/sqltx"
)

// Limit is a row of limits.
type Limit struct {
	Customer  string `bun:",pk"`
	CentsLeft int64
}

// Payment is a row of payments.
type Payment struct {
	OrderID   string `bun:",pk"`
	Customer  string
	Cents     int64
	ChargedAt time.Time `bun:",nullzero,default:now()"`
}

// Register registers the service's handler. receipts is the topic of the hop that sends receipts. db is the service's own; each
// query names tx as its connection.
func Register(p *participant.Participant, db *bun.DB, receipts string) {
	out := p.Outbox()
	sqltx.Handle(p, func(ctx context.Context, tx *sql.Tx, c participant.Command[services.ChargePayment]) (participant.Outcome, error) {
		var limit Limit
		err := db.NewSelect().Conn(tx).Model(&limit).Where("customer = ?", c.Body.Customer).For("UPDATE").Scan(ctx)
		if errors.Is(err, sql.ErrNoRows) || err == nil && limit.CentsLeft < c.Body.Cents {
			return participant.Refuse(services.OverLimit()), nil
		}
		if err != nil {
			return participant.Outcome{}, err
		}
		done, err := db.NewInsert().Conn(tx).Model(&Payment{
			OrderID: c.Body.OrderID, Customer: c.Body.Customer, Cents: c.Body.Cents,
		}).On("CONFLICT DO NOTHING").Returning("NULL").Exec(ctx)
		if err != nil {
			return participant.Outcome{}, err
		}
		if charged, err := done.RowsAffected(); err != nil {
			return participant.Outcome{}, err
		} else if charged == 1 { // not the same order in another message
			if _, err := db.NewUpdate().Conn(tx).Model(&limit).Set("cents_left = cents_left - ?", c.Body.Cents).WherePK().Exec(ctx); err != nil {
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
