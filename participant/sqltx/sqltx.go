// Package sqltx lets handlers of a participant use database/sql: they get their transaction as a *sql.Tx instead of a pgx.Tx. So
// code of sqlc, GORM, bun or ent, and your own code for a *sql.Tx, runs in the participant's own transaction.
//
//	            ┌────────────────── one transaction ──────────────────┐
//	Kafka ─────►│ inbox row · rows written with *sql.Tx · outbox rows │──► commit
//	            └─────────────────────────────────────────────────────┘
//
// It is the transaction of the participant's pgx pool: the same connection, inbox and commit. All promises of package participant
// hold. The service's own *sql.DB is not used, whatever its driver is.
//
//	in the handler                       effect
//	tx.Commit, tx.Rollback               refused: nothing is sent, no later statement of the *sql.Tx runs, and the message is a
//	                                     dead letter, also if the handler returns no error. Return an outcome or an error instead
//	SAVEPOINT, ROLLBACK TO as SQL        allowed; GORM's nested transactions send them
//	COMMIT, ROLLBACK, BEGIN as SQL       refused, as in any handler; the message is a dead letter
//	a context that ends                  pgx closes the connection; the run is rolled back and tried again, as in any handler
//	an error of Postgres                 a *pgconn.PgError, which errors.As finds; never a *pq.Error
//	rows left open                       the run fails
//	use after the handler has returned   sql.ErrTxDone
//	Prepare                              sends nothing: an error of the statement comes when it runs. pgx prepares each
//	                                     statement itself, and keeps it for the connection's next transactions
//	tx.Stmt with a statement of a        an error of database/sql: the statement belongs to another *sql.DB. With sqlc's
//	service's own *sql.DB                emit_prepared_queries call New(tx), not WithTx
//
// To write to the outbox, call WriteSQL of the participant's Outbox with the *sql.Tx. Pgx returns the participant's pgx.Tx, for functions that need
// it, such as Schedule and AfterCommit.
package sqltx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/sqlconn"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// With calls fn with an open transaction of pgx as a *sql.Tx, which can be used until fn returns. The owner of tx still commits it or
// rolls it back. With is for handlers that use both, and for services that hold a pgx.Tx of their own.
func With(ctx context.Context, tx pgx.Tx, fn func(tx *sql.Tx) error) error {
	return sqlconn.With(ctx, tx, fn)
}

var errNotOurs = errors.New("sqltx: this *sql.Tx is not the transaction of a handler, or its handler has returned")

// Pgx returns the pgx.Tx under a handler's *sql.Tx. It returns an error for any other transaction, and after the handler has
// returned. Both use one connection: close the rows of one transaction before you use the other.
func Pgx(tx *sql.Tx) (pgx.Tx, error) {
	under, ok := sqlconn.Pgx(tx)
	if !ok {
		return nil, errNotOurs
	}
	return under, nil
}

// Handle is participant.Handle for a function that takes a *sql.Tx.
func Handle[T any](
	p *participant.Participant, fn func(ctx context.Context, tx *sql.Tx, c participant.Command[T]) (participant.Outcome, error),
	opts ...participant.HandlerOption,
) {
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[T]) (o participant.Outcome, err error) {
		err = With(ctx, tx, func(tx *sql.Tx) (err error) {
			o, err = fn(ctx, tx, c)
			return err
		})
		return o, err
	}, opts...)
}

// Call is participant.Call for a decide that takes a *sql.Tx. call has no transaction.
func Call[T, A any](
	p *participant.Participant,
	call func(ctx context.Context, c participant.Command[T]) (A, error),
	decide func(ctx context.Context, tx *sql.Tx, c participant.Command[T], answer A) (participant.Outcome, error),
	opts ...participant.HandlerOption,
) {
	participant.Call(p, call, func(ctx context.Context, tx pgx.Tx, c participant.Command[T], answer A) (o participant.Outcome, err error) {
		err = With(ctx, tx, func(tx *sql.Tx) (err error) {
			o, err = decide(ctx, tx, c, answer)
			return err
		})
		return o, err
	}, opts...)
}

// React is participant.React for a function that takes a *sql.Tx.
func React[T any](
	p *participant.Participant, from topics.Hop,
	fn func(ctx context.Context, tx *sql.Tx, e participant.Event[T]) (participant.Outcome, error), opts ...participant.HandlerOption,
) {
	participant.React(p, from, func(ctx context.Context, tx pgx.Tx, e participant.Event[T]) (o participant.Outcome, err error) {
		err = With(ctx, tx, func(tx *sql.Tx) (err error) {
			o, err = fn(ctx, tx, e)
			return err
		})
		return o, err
	}, opts...)
}

// On is participant.On for a function that takes a *sql.Tx.
func On[T any](
	p *participant.Participant, from topics.Hop, fn func(ctx context.Context, tx *sql.Tx, e participant.Event[T]) error,
	opts ...participant.HandlerOption,
) {
	participant.On(p, from, func(ctx context.Context, tx pgx.Tx, e participant.Event[T]) error {
		return With(ctx, tx, func(tx *sql.Tx) error { return fn(ctx, tx, e) })
	}, opts...)
}

// OnAll is participant.OnAll for a function that takes a *sql.Tx.
func OnAll(p *participant.Participant, from []topics.Hop, fn func(ctx context.Context, tx *sql.Tx, ms []participant.Taken) error) {
	participant.OnAll(p, from, func(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
		return With(ctx, tx, func(tx *sql.Tx) error { return fn(ctx, tx, ms) })
	})
}

// OnDeadline is participant.OnDeadline for a function that takes a *sql.Tx.
func OnDeadline[T any](p *participant.Participant, name string, fn func(ctx context.Context, tx *sql.Tx, d participant.Due[T]) error) {
	participant.OnDeadline(p, name, func(ctx context.Context, tx pgx.Tx, d participant.Due[T]) error {
		return With(ctx, tx, func(tx *sql.Tx) error { return fn(ctx, tx, d) })
	})
}
