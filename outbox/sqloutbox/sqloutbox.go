// Package sqloutbox writes to the outbox with database/sql. It works in a transaction of pgx's stdlib or of lib/pq, and in the *sql.Tx that
// package sqltx gives to a participant's handler. It promises the same as package outbox.
//
//	transaction                           statements
//	of the service's own *sql.DB          one for up to 100 entries, and one for the notification if it is due
//	of a handler (package sqltx)          no statements of their own: the entries are sent with the handler's next statement or COMMIT,
//	                                      which then returns any error of Postgres
//
// With lib/pq each statement is two round trips, unless the connection sets binary_parameters.
package sqloutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/troupe-go/troupe/internal/sqlconn"
	"github.com/troupe-go/troupe/outbox"
)

// An Outbox writes entries. It is safe for concurrent use.
type Outbox struct{ to *outbox.Outbox }

// New returns an Outbox that writes as o does. In a service with a participant call New(p.Outbox()), so that entries are checked against
// the contract of its flow.
func New(o *outbox.Outbox) *Outbox { return &Outbox{o} }

// Tx is a transaction of database/sql: a *sql.Tx, the DBTX of code that sqlc generates, the Tx in a bun.Tx, a ConnPool of GORM.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

var errNoTransaction = errors.New("outbox: a *sql.DB is no transaction: its entries would be published although your own rows are rolled back; call BeginTx")

// Write adds entries to tx, in their order. It refuses an invalid entry before anything is sent, and leaves tx usable. After any other
// error tx is aborted. Write refuses a *sql.DB. It cannot check other values: tx must be a transaction.
//
// In a handler's context the entries get the handled message as their cause, as with outbox.Write.
func (o *Outbox) Write(ctx context.Context, tx Tx, entries ...outbox.Entry) error {
	switch tx := tx.(type) {
	case *sql.DB:
		return errNoTransaction
	case *sql.Tx:
		if under, ok := sqlconn.Pgx(tx); ok {
			return o.to.Write(ctx, under, entries...)
		}
	}
	statements, err := o.to.Statements(ctx, entries...)
	if err != nil {
		return err
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s.SQL, s.Args...); err != nil {
			return fmt.Errorf("outbox: write: %w", err)
		}
	}
	return nil
}
