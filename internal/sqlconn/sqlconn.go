// Package sqlconn gives an open transaction of pgx to code that is written for database/sql: it is a driver whose only
// connection is that transaction.
//
//	*sql.Tx ──► conn, the driver's connection ──► pgx.Tx ──► Postgres
//
// Statements of the *sql.Tx are statements of the pgx.Tx, with all that the pgx.Tx checks. BEGIN is not sent, since the
// transaction is open, and neither are COMMIT and ROLLBACK, since the owner of the pgx.Tx ends it: Commit and Rollback of the *sql.Tx
// return an error, and With returns it as a permanent error. An error of Postgres is pgx's own: errors.As finds *pgconn.PgError.
//
// Values that are read have the types that pgx's stdlib gives them. Values that are written go to pgx as they are, so each type
// that pgx encodes can be an argument, and driver.Valuer too. Prepare sends nothing: pgx prepares a statement when it runs, as
// the pool is configured, and keeps it for the connection's next transactions.
package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/retry"
)

var (
	errCommit   = errors.New("this transaction is committed by its owner: remove the call of Commit, and return no error")
	errRollback = errors.New("this transaction is rolled back by its owner: remove the call of Rollback, and return an error instead")
	errOpen     = errors.New("rows were left open: close them before you return")
	errInUse    = errors.New("a goroutine still uses the transaction: wait for it before you return")
	errEnded    = fmt.Errorf("the function that had this transaction has returned: %w", sql.ErrTxDone)
)

// pgxOf holds the pgx.Tx of each *sql.Tx until its With returns. A *sql.Tx does not give access to its driver's connection.
var pgxOf sync.Map

// Pgx returns the pgx.Tx under a transaction that With opened, until With returns.
func Pgx(tx *sql.Tx) (pgx.Tx, bool) {
	under, ok := pgxOf.Load(tx)
	if !ok {
		return nil, false
	}
	return under.(pgx.Tx), true
}

// With calls fn with tx as a *sql.Tx, which ends when fn returns, panics or ends its goroutine: each later use is an error.
// When ctx ends, the *sql.Tx ends too, and With returns ctx's error, even if fn returns none.
func With(ctx context.Context, tx pgx.Tx, fn func(tx *sql.Tx) error) (err error) {
	c := &conn{ctx: ctx, tx: tx}
	db := sql.OpenDB(c)
	sqlTx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	pgxOf.Store(sqlTx, tx)
	defer func() {
		pgxOf.Delete(sqlTx)
		idle, mistake := c.end()
		release := func() { _, _ = sqlTx.Rollback(), db.Close() }
		if idle {
			release()
		} else {
			go release() // Rollback waits for the running statement, which ends with tx
		}
		err = result(ctx, err, mistake)
	}()
	return fn(sqlTx)
}

// result returns With's error.
func result(ctx context.Context, err, mistake error) error {
	switch {
	case errors.Is(mistake, errCommit), errors.Is(mistake, errRollback):
		if err == nil || errors.Is(err, mistake) {
			return retry.Permanent(mistake)
		}
		return retry.Permanent(fmt.Errorf("%w: %w", mistake, err))
	case err == nil && mistake == nil:
		return ctx.Err() // database/sql may have refused statements
	case err == nil:
		return mistake
	case errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil: // database/sql reports only that the transaction has ended
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
