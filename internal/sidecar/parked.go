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

	listMapped    = statement("list_mapped")
	showMapped    = statement("show_mapped")
	retryMapped   = statement("retry_mapped")
	discardMapped = statement("discard_mapped")
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

	EventID string             `json:"event_id,omitempty"` // of a table with a mapping, as it stands there
	Columns map[string]*string `json:"columns,omitempty"`  // of such a row that cannot be mapped
	mapped  bool
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

// A pageOf is which rows are listed.
type pageOf struct {
	topic string // only of this; empty: any
	after int64  // only above this position
	rows  int    // at most
}

func readParked(ctx context.Context, db querier, of tableOf, want pageOf) (parkedPage, error) {
	page, rows := parkedPage{Rows: []parkedRow{}}, want.rows
	query := listParked
	if of.mapping != nil {
		query = listMapped
	}
	found, err := db.Query(ctx, query, pgx.NamedArgs{"table": of.name, "topic": want.topic, "after": want.after, "rows": rows + 1})
	if err != nil {
		return page, notMigrated(err)
	}
	all, err := pgx.CollectRows(found, func(one pgx.CollectableRow) (parkedRow, error) {
		return of.scanParked(one)
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

func readParkedRow(ctx context.Context, db querier, of tableOf, id uuid.UUID) (parkedRow, error) {
	if of.mapping != nil {
		return of.readParkedRow(ctx, db, id)
	}
	var r parkedRow
	found, err := db.Query(ctx, showParked, pgx.NamedArgs{"id": [16]byte(id)})
	if err != nil {
		return r, notMigrated(err)
	}
	r, err = pgx.CollectOneRow(found, func(one pgx.CollectableRow) (r parkedRow, err error) {
		var payload []byte
		err = one.Scan(append(r.fields(), &r.Headers, &payload)...)
		r.Payload = shown(payload)
		return r, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return r, notParked{id}
	}
	return r, notMigrated(err)
}

// shown is what a person can read; nil of nothing.
func shown(payload []byte) *string {
	if payload == nil {
		return nil
	}
	text := string(payload)
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		text = fmt.Sprintf(`\x%x`, payload)
	}
	return &text
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
func repair(ctx context.Context, db querier, of tableOf, action string, id uuid.UUID, who by) (repaired, error) {
	var r repaired
	if err := who.check(action); err != nil {
		return r, err
	}
	if of.mapping != nil {
		action = map[string]string{retryParked: retryMapped, discardParked: discardMapped}[action]
	}
	found, err := db.Query(ctx, action, pgx.NamedArgs{
		"table": of.name, "id": [16]byte(id), "actor": who.Actor, "reason": who.Reason, "channel": outbox.Channel,
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
