package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/relay/mapping"
)

// A DB runs queries: a pool, a connection or a transaction.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// A Table identifies an outbox: troupe.outbox, or a table with a mapping.
type Table struct {
	Name string // schema.table of a table with a mapping; "": troupe.outbox
	// Mapping renders the table's rows as the messages that they become. Nil: rows are shown as columns.
	Mapping *mapping.Mapping
}

// A Desk works on one outbox. It is safe for concurrent use if DB is.
type Desk struct {
	DB    DB
	Table Table
}

func (d Desk) mapped() bool { return d.Table.Name != "" }

// By names the operator who acts, and the reason.
type By struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
}

const mostText = 1000 // maximum length of an actor or a reason, in bytes

// Check returns an error if the actor is missing, or if a required reason is. A non-empty why says that a reason is required,
// and why.
func (b By) Check(why string) error {
	switch {
	case strings.TrimSpace(b.Actor) == "":
		return errors.New("want an actor: who does it, for the record")
	case strings.TrimSpace(b.Reason) == "" && why != "":
		return errors.New("want a reason, for the record: " + why)
	case len(b.Actor) > mostText, len(b.Reason) > mostText:
		return fmt.Errorf("%w: at most %d bytes", ErrTooLong, mostText)
	}
	if err := plain.CheckName(b.Actor); err != nil {
		return fmt.Errorf("actor: %w", err)
	}
	return nil
}

// Actions that require a reason.
const (
	WhyDiscard = "a discarded row is never published"
	WhyPause   = "nothing is published until somebody resumes"
)

func notMigrated(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && (refusal.Code == "42P01" || refusal.Code == "3F000" || refusal.Code == "42703") {
		return fmt.Errorf("the database is not migrated: outbox-relay migrate: %w", err)
	}
	return err
}

// all runs a query and collects its rows.
func all[T any](ctx context.Context, db DB, query string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) ([]T, error) {
	found, err := db.Query(ctx, query, args)
	if err != nil {
		return nil, notMigrated(err)
	}
	rows, err := pgx.CollectRows(found, scan)
	return rows, notMigrated(err)
}
