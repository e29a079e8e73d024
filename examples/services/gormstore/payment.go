// Package gormstore is the payment service with GORM.
package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/troupe-go/troupe/examples/services"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/participant/sqltx"
)

// Limit is a row of limits.
type Limit struct {
	Customer  string `gorm:"primaryKey"`
	CentsLeft int64
}

// Payment is a row of payments.
type Payment struct {
	OrderID   string `gorm:"primaryKey"`
	Customer  string
	Cents     int64
	ChargedAt time.Time `gorm:"autoCreateTime"`
}

// in returns a session of the service's own *gorm.DB whose statements run in tx.
func in(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	session := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	session.Statement.ConnPool = tx
	return session
}

// Register registers the service's handler. receipts is the topic of the hop that sends receipts.
func Register(p *participant.Participant, service *gorm.DB, receipts string) {
	out := p.Outbox()
	sqltx.Handle(p, func(ctx context.Context, tx *sql.Tx, c participant.Command[services.ChargePayment]) (participant.Outcome, error) {
		db := in(ctx, service, tx)
		var limit Limit
		err := db.Clauses(clause.Locking{Strength: "UPDATE"}).First(&limit, "customer = ?", c.Body.Customer).Error
		if errors.Is(err, gorm.ErrRecordNotFound) || err == nil && limit.CentsLeft < c.Body.Cents {
			return participant.Refuse(services.OverLimit()), nil
		}
		if err != nil {
			return participant.Outcome{}, err
		}
		charged := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&Payment{
			OrderID: c.Body.OrderID, Customer: c.Body.Customer, Cents: c.Body.Cents,
		})
		if charged.Error != nil {
			return participant.Outcome{}, charged.Error
		}
		if charged.RowsAffected == 1 { // not the same order in another message
			if err := db.Model(&limit).Update("cents_left", gorm.Expr("cents_left - ?", c.Body.Cents)).Error; err != nil {
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
