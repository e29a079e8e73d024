package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrBusy is wrapped by the error about a row that another transaction has locked for longer than LimitLocks allows. Nothing
// was changed.
var ErrBusy = errors.New("busy")

const lockLimit = "10s"

// LimitLocks lets the statements of a transaction wait for a locked row for at most 10 s.
func LimitLocks(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+lockLimit+"'")
	return err
}

// InTx calls do in a transaction at READ COMMITTED whose statements wait for a locked row for at most 10 s. Its errors are explained with
// the page guide, as by Explain.
func InTx(ctx context.Context, pool *pgxpool.Pool, guide string, do func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := LimitLocks(ctx, tx); err != nil {
			return err
		}
		return do(tx)
	})
	return Explain(err, guide)
}

// Explain adds the remedy to errors of Postgres about missing tables, missing rights and locked rows. guide is the page of the
// documentation that lists the rights. It returns other errors unchanged.
func Explain(err error, guide string) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Code {
	case "42P01", "42703", "42883", "3F000": // undefined table, column, function, schema
		return fmt.Errorf("the database lacks tables of this version (outbox-relay migrate makes them; is it the right "+
			"database?): %w", err)
	case "42501": // insufficient privilege
		return fmt.Errorf("the database role lacks a right (%s lists what each command needs): %w", guide, err)
	case "55P03": // lock not available
		return fmt.Errorf("%w: another transaction has locked it for %s, nothing was done: try again: %w", ErrBusy, lockLimit, err)
	}
	return err
}
