package repair

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors that callers tell apart. All others say what to do in their text.
var (
	// ErrNotFound: there is no such dead letter, or no such held message.
	ErrNotFound = errors.New("not found")
	// ErrNotOpen: somebody has redriven or discarded the dead letter before.
	ErrNotOpen = errors.New("not open any more")
	// ErrBusy: somebody else is at it: a handler that runs, or another person.
	ErrBusy = errors.New("busy")
	// ErrGone: the held message has taken effect, or is a dead letter by now.
	ErrGone = errors.New("not held any more")
	// ErrBehind: the held message waits behind another one of its key.
	ErrBehind = errors.New("not the first of its key")
	// ErrPayload: what an edit gives cannot be this message's payload.
	ErrPayload = errors.New("payload refused")
	// ErrUnsendable: no relay could send the message, or no participant could take it.
	ErrUnsendable = errors.New("cannot be redriven")
)

// explain adds what to do about errors of Postgres that do not say it.
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
