package desk

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/mapping"
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

// rights is the page that lists the rights of each command.
const rights = "docs/security.md"

func explain(err error) error { return admin.Explain(err, rights) }

// all runs a query and collects its rows.
func all[T any](ctx context.Context, db DB, query string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) ([]T, error) {
	found, err := db.Query(ctx, query, args)
	if err != nil {
		return nil, explain(err)
	}
	rows, err := pgx.CollectRows(found, scan)
	return rows, explain(err)
}
