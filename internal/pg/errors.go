// Package pg contains the parts that several packages need of Postgres: classes of errors, sessions, and a wake-up by NOTIFY.
package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Class classifies an error by the caller's reaction to it.
type Class int

// The classes, from errors without information about the statement to errors of statements that can never work.
const (
	Unknown     Class = iota // no error of Postgres
	Unavailable              // the server or the network fails: wait, do not count it against the message
	Conflict                 // lost a race with another transaction: try again at once
	Transient                // may work later
	Permanent                // the data can never be stored
)

// Classify classifies by the SQLSTATE, or, for an error that did not come from the server, by its kind. The codes are from the
// Postgres manual, appendix A.
func Classify(err error) Class {
	if err == nil {
		return Unknown
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return classifyState(pgErr.Code)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &connect), pgconn.SafeToRetry(err),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return Unavailable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unknown // the caller's own time-out
	case errors.As(err, &network):
		return Unavailable
	}
	// pgx closes a connection on a failed read or write, and reports it only as text at the next use.
	if strings.HasSuffix(err.Error(), "conn closed") {
		return Unavailable
	}
	return Unknown
}

func classifyState(code string) Class {
	switch code {
	case "40001", "40P01", "55P03": // serialisation failure, deadlock, lock not available
		return Conflict
	case "57014": // query cancelled, by statement_timeout too
		return Transient
	case "25006": // read-only transaction: a standby, or a former primary
		return Unavailable
	case "22P05", "22021", "23502", "23514":
		return Permanent
	}
	switch code[:min(len(code), 2)] {
	case "08", "53", "57", "58": // connection, resources, operator intervention, system error
		return Unavailable
	case "22": // data exception
		return Permanent
	}
	return Transient
}
