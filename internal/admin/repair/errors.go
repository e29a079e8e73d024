package repair

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// These are the errors that callers distinguish. The text of all others describes the remedy.
var (
	// ErrNotFound means that there is no such dead letter, held message or unreadable batch.
	ErrNotFound = errors.New("not found")
	// ErrNotOpen means that the dead letter was redriven or discarded before, or the batch skipped.
	ErrNotOpen = errors.New("not open any more")
	// ErrBusy means that another session has locked the message: a running handler, or another operator.
	ErrBusy = errors.New("busy")
	// ErrGone means that the held message has taken effect, or has become a dead letter.
	ErrGone = errors.New("not held any more")
	// ErrBehind means that the held message waits behind another one of its key.
	ErrBehind = errors.New("not the first of its key")
	// ErrPayload means that the text of an edit cannot be this message's payload.
	ErrPayload = errors.New("payload refused")
	// ErrUnsendable means that no relay could send the message, or that no participant could consume it.
	ErrUnsendable = errors.New("cannot be redriven")
)

// explain adds the remedy to errors of Postgres.
func explain(err error) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Code {
	case "42P01", "42703", "42883", "3F000": // undefined table, column, function, schema
		return fmt.Errorf("the database lacks tables of this version (outbox-relay migrate makes them; is it the right "+
			"database?): %w", err)
	case "42501":
		return fmt.Errorf("the database role lacks a right (docs/dead-letters.md lists what each command needs): %w", err)
	case "55P03":
		return fmt.Errorf("%w: somebody else has been at it for %s, nothing was done: try again (%s)", ErrBusy, lockLimit,
			refused.Message)
	}
	return err
}
