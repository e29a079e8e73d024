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

// A DB is a pool, a connection or a transaction.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// A Table is the one of an outbox.
type Table struct {
	Name string // schema.table of one with a mapping; "": troupe.outbox
	// Mapping shows its rows as the messages that they are to be. Nil: as columns.
	Mapping *mapping.Mapping
}

// A Desk works on one outbox. It may be used concurrently if DB may.
type Desk struct {
	DB    DB
	Table Table
}

func (d Desk) mapped() bool { return d.Table.Name != "" }

// By is who does something, and why.
type By struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
}

const mostText = 1000 // bytes of an actor or a reason

// Check says what is missing; why is what needs a reason, "" where none is needed.
func (b By) Check(why string) error {
	switch {
	case strings.TrimSpace(b.Actor) == "":
		return errors.New("want an actor: who does it, for the record")
	case strings.TrimSpace(b.Reason) == "" && why != "":
		return errors.New("want a reason, for the record: " + why)
	case len(b.Actor) > mostText, len(b.Reason) > mostText:
		return fmt.Errorf("an actor or a reason of more than %d bytes", mostText)
	}
	if err := plain.CheckName(b.Actor); err != nil {
		return fmt.Errorf("actor: %w", err)
	}
	return nil
}

// What needs a reason.
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

// all collects the rows of a query.
func all[T any](ctx context.Context, db DB, query string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) ([]T, error) {
	found, err := db.Query(ctx, query, args)
	if err != nil {
		return nil, notMigrated(err)
	}
	rows, err := pgx.CollectRows(found, scan)
	return rows, notMigrated(err)
}
