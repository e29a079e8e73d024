package participant

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/retry"
)

// Class is the kind of failure that a run ended with, as stored in troupe.held, troupe.dead_letters and headers.
type Class string

// The classes. Permanent and Poison are not retried. RateLimited counts no attempt.
const (
	Transient   Class = deadletter.Transient
	RateLimited Class = deadletter.RateLimited
	Permanent   Class = deadletter.Permanent
	Poison      Class = deadletter.Poison
	Panic       Class = deadletter.Panic
	Timeout     Class = deadletter.Timeout
)

// errorText returns f's error as text for a column: at most maxErrorBytes, and in ASCII if the database is not in UTF-8.
func (p *Participant) errorText(f failure) string {
	text := readable(f.err.Error(), maxErrorBytes)
	if p.notUTF8.Load() {
		return pgtext.ASCII(text)
	}
	return text
}

// learnEncoding sets notUTF8 if the database of conn is not in UTF-8.
func (p *Participant) learnEncoding(conn *pgx.Conn) {
	if conn.PgConn().ParameterStatus("server_encoding") != "UTF8" {
		p.notUTF8.Store(true)
	}
}

// final reports whether another try cannot help.
func (f failure) final() bool { return f.class == Permanent || f.class == Poison }

// why returns, for a log line, the reason why a message whose last failure has class c is a dead letter.
func why(c Class) string {
	switch c {
	case Permanent:
		return "trying again cannot help"
	case Poison:
		return "the message cannot be read"
	case RateLimited:
		return "rate limited for longer than RateLimitedWait"
	}
	return "attempts exhausted"
}

var errNoOutcome = errors.New("the handler ended without an outcome")

// classified is an error whose class is known where the error occurs.
type classified struct {
	class Class
	error
}

func (c classified) Unwrap() error { return c.error }

// panicked is the error for a handler's panic.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// conflict is an error after which the run is repeated immediately. Another transaction won a race with a statement of the handler or of this package
// (own), or the connection was lost (cut).
type conflict struct {
	error
	own bool
	cut bool
}

func (c conflict) Unwrap() error { return c.error }

// classify returns the class of a run's error. No other code decides on a class, except code that returns a classified error.
func classify(err error) Class {
	var known classified
	var panicked panicked
	switch {
	case errors.As(err, &known):
		return known.class
	case errors.As(err, &panicked):
		return Panic
	case retry.IsPermanent(err), errors.Is(err, errNoOutcome), errors.Is(err, outbox.ErrTooLarge),
		pg.Classify(err) == pg.Permanent:
		return Permanent
	case retry.IsRateLimited(err):
		return RateLimited
	}
	return Transient
}

var errRowsLocked = errors.New("another session has locked rows of the message: does the statement of a run go on there whose connection was lost?")

// ownError classifies an error of a statement of this package. If a statement was cancelled by a time limit and the database answers on another
// connection, the database is not away: a row was locked for too long, which is a lost race (errRowsLocked). Every other error, except a lost race,
// counts as an outage of the database.
func (p *Participant) ownError(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case err == nil, isAway(err):
		return err
	case errors.As(err, &pgErr) && pgErr.Code == "55P03", errors.Is(err, context.DeadlineExceeded) && p.databaseAnswers():
		return conflict{error: fmt.Errorf("%w %w", errRowsLocked, err)}
	case pg.Classify(err) == pg.Conflict:
		return conflict{error: err, own: true}
	}
	return database(err)
}

// isUnstorable reports whether a statement of this package failed because the database's encoding lacks a character, or refuses a byte, of a
// message's attribute.
func isUnstorable(err error) bool {
	var pgErr *pgconn.PgError
	what, _ := retry.IsUnavailable(err)
	return what == theDatabase && errors.As(err, &pgErr) && (pgErr.Code == "22P05" || pgErr.Code == "22021")
}

// databaseAnswers reports whether the database answers on another connection.
func (p *Participant) databaseAnswers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackLimit)
	defer cancel()
	return p.cfg.Pool.Ping(ctx) == nil
}

// ownTxError classifies an error of a transaction that has only statements of this package. If another session has locked the rows, it returns
// errRowsLocked. Every other error counts as an outage of the database.
func (p *Participant) ownTxError(err error) error {
	if err = p.ownError(err); errors.Is(err, errRowsLocked) {
		return err
	}
	return database(err)
}

// handlerError classifies an error that occurred while a handler had a transaction and whose connection still works. Such an error is no outage,
// whatever its SQLSTATE is: another server may have sent it, or a statement of the handler exceeded a limit. If the database is away nevertheless,
// the failure cannot be recorded either, so that no attempt is counted.
func handlerError(err error) error {
	if pg.Classify(err) == pg.Conflict || wonAtOnce(err) {
		return conflict{error: err}
	}
	return err
}

// atCommit classifies an error of COMMIT, or of a statement that was queued before it. If the connection is closed, it is not known whether the
// transaction has committed: the run is repeated, and finds out from the inbox. Otherwise the message is the cause, for example by a deferred
// constraint.
func atCommit(err error, closed bool) error {
	if err != nil && closed {
		return conflict{error: err, cut: true}
	}
	return handlerError(err)
}

// wonAtOnce reports whether err violates a unique key of one of Troupe's tables: another transaction inserted the same row, such as an answer or a
// saga, at the same time.
func wonAtOnce(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "23505" && pgErr.SchemaName == "troupe"
}

// blames reports whether err, the error of a run, is about the run's message. It is not if a dependency is away, another transaction won a race, the
// partition has another owner, a permit is missing, or the run was cancelled.
func blames(err error) bool {
	var race conflict
	return !isAway(err) && !errors.As(err, &race) && !errors.Is(err, errFenced) && !errors.Is(err, errNoPermit) &&
		!errors.Is(err, context.Canceled)
}
