package sidecar

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/outbox"
)

//go:embed sql/*.sql
var statementFiles embed.FS

var (
	listParked    = statement("list_parked")
	showParked    = statement("show_parked")
	retryParked   = statement("retry_parked")
	discardParked = statement("discard_parked")
)

func statement(name string) string {
	text, err := statementFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // embedded: only a wrong name
	}
	return string(text)
}

// A querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// A parkedRow waits for a person, and its key behind it.
type parkedRow struct {
	Position    int64      `json:"position"`
	ID          uuid.UUID  `json:"id"`
	Topic       string     `json:"topic"`
	Key         string     `json:"key,omitempty"` // 0x… where it is no text
	Type        string     `json:"type,omitempty"`
	Attempts    int        `json:"attempts"`
	LastError   string     `json:"last_error"`
	FirstFailed time.Time  `json:"first_failed_at"`
	Created     *time.Time `json:"created_at,omitempty"` // null: the row is gone from the outbox

	Headers string  `json:"headers,omitempty"` // from here on only where one is shown
	Payload *string `json:"payload,omitempty"` // as \x… where it is no text
}

func (r *parkedRow) fields() []any {
	return []any{&r.Position, (*[16]byte)(&r.ID), &r.Topic, &r.Key, &r.Type, &r.Attempts, &r.LastError, &r.FirstFailed, &r.Created}
}

// A parkedPage is some of them; Next is what after must be for those behind, or 0.
type parkedPage struct {
	Rows []parkedRow `json:"rows"`
	Next int64       `json:"next,omitempty"`
}

const (
	parkedPerPage  = 50
	mostParkedPage = 1000
)

func readParked(ctx context.Context, db querier, topic string, after int64, rows int) (parkedPage, error) {
	page := parkedPage{Rows: []parkedRow{}}
	found, err := db.Query(ctx, listParked, pgx.NamedArgs{"topic": topic, "after": after, "rows": rows + 1})
	if err != nil {
		return page, notMigrated(err)
	}
	all, err := pgx.CollectRows(found, func(one pgx.CollectableRow) (r parkedRow, err error) {
		return r, one.Scan(r.fields()...)
	})
	if err != nil {
		return page, notMigrated(err)
	}
	if len(all) > rows {
		all = all[:rows]
		page.Next = all[rows-1].Position
	}
	page.Rows = append(page.Rows, all...)
	return page, nil
}

func readParkedRow(ctx context.Context, db querier, id uuid.UUID) (parkedRow, error) {
	var r parkedRow
	found, err := db.Query(ctx, showParked, pgx.NamedArgs{"id": [16]byte(id)})
	if err != nil {
		return r, notMigrated(err)
	}
	r, err = pgx.CollectOneRow(found, func(one pgx.CollectableRow) (r parkedRow, err error) {
		var payload []byte
		err = one.Scan(append(r.fields(), &r.Headers, &payload)...)
		if payload != nil {
			text := string(payload)
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				text = fmt.Sprintf(`\x%x`, payload)
			}
			r.Payload = &text
		}
		return r, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return r, notParked{id}
	}
	return r, notMigrated(err)
}

// notParked says that nothing was done.
type notParked struct{ id uuid.UUID }

func (e notParked) Error() string {
	return fmt.Sprintf("%s is not parked: perhaps it was published or discarded meanwhile; see outbox-relay parked list", e.id)
}

// by is who does it, and why.
type by struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
}

const mostText = 1000 // characters of an actor or a reason

func (b by) check(action string) error {
	switch {
	case strings.TrimSpace(b.Actor) == "":
		return errors.New("want an actor: who does it, for the record")
	case strings.TrimSpace(b.Reason) == "" && action == discardParked:
		return errors.New("want a reason, for the record: a discarded row is never published")
	case len(b.Actor) > mostText, len(b.Reason) > mostText:
		return fmt.Errorf("an actor or a reason of more than %d bytes", mostText)
	}
	return nil
}

// A repaired row is what an action was done to.
type repaired struct {
	Position int64  `json:"position"`
	Topic    string `json:"topic"`
}

// repair retries or discards one row, in one statement with the record of it. The error is notParked when it waits for
// nobody.
func repair(ctx context.Context, db querier, action string, id uuid.UUID, who by) (repaired, error) {
	var r repaired
	if err := who.check(action); err != nil {
		return r, err
	}
	found, err := db.Query(ctx, action, pgx.NamedArgs{
		"id": [16]byte(id), "actor": who.Actor, "reason": who.Reason, "channel": outbox.Channel,
	})
	if err != nil {
		return r, notMigrated(err)
	}
	all, err := pgx.CollectRows(found, func(one pgx.CollectableRow) (r repaired, err error) {
		return r, one.Scan(&r.Position, &r.Topic, nil)
	})
	switch {
	case err != nil:
		return r, notMigrated(err)
	case len(all) == 0:
		return r, notParked{id}
	}
	return all[0], nil
}

func notMigrated(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && (refusal.Code == "42P01" || refusal.Code == "3F000") {
		return fmt.Errorf("the database is not migrated: outbox-relay migrate: %w", err)
	}
	return err
}
