package actions

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

//go:embed sql/list_actions.sql
var listActions string

// A DB runs queries: a pool, a connection or a transaction.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// An Action is one action of an operator, or all actions in one hour with the same actor, role, action, kind of object, subject and reason. Its
// JSON is the output of troupe actions.
type Action struct {
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Actor   string    `json:"actor"`
	Role    string    `json:"role"` // the database's role
	Action  string    `json:"action"`
	Object  string    `json:"object"`  // dead letter, held message, batch, outbox row, relay, saga, schedule, rebuild or erasure
	Subject string    `json:"subject"` // the topic, the shard, the type of the sagas, or the change of a schedule or rebuild
	Reason  string    `json:"reason"`
	Count   int       `json:"count"`
	Example string    `json:"example"` // the id of the last action's object; for a held message and a batch the message's id, for a schedule its name, for an erasure the SHA-256 of the key; "" for a relay
}

// A Filter selects actions that match all fields that are set.
type Filter struct {
	Actor         string
	Since, Before time.Time // Since is inclusive, Before is exclusive
}

// Validate returns an error if a field has an invalid value.
func (f Filter) Validate() error {
	if !f.Since.IsZero() && !f.Before.IsZero() && !f.Since.Before(f.Before) {
		return fmt.Errorf("since %s is not before %s: no action can match both", f.Since.Format(time.RFC3339), f.Before.Format(time.RFC3339))
	}
	return nil
}

// A Page selects a part of a list. Limit is 1 to 10,000. After is the cursor that the previous page returned.
type Page struct {
	Limit int
	After string
}

const (
	mostLines = 10_000
	mostRows  = 10_000 // of one table
)

// Validate returns an error if a field has an invalid value.
func (p Page) Validate() error {
	if p.Limit < 1 || p.Limit > mostLines {
		return admin.FieldError{Field: "limit", Problem: fmt.Sprintf("%d: want 1 to %d", p.Limit, mostLines)}
	}
	return nil
}

// List returns actions, the newest first. next is the cursor of the next page, "" after the last. It reads the newest 10,000 actions of
// each table in the period: Before reaches older ones.
func List(ctx context.Context, db DB, f Filter, p Page) (list []Action, next string, err error) {
	after := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	if err = f.Validate(); err == nil {
		err = p.Validate()
	}
	if err == nil && p.After != "" {
		after, _, err = admin.ReadTimeCursor(p.After)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list actions: %w", err)
	}
	before := f.Before
	if before.IsZero() {
		before = after
	}
	rows, err := db.Query(ctx, listActions, pgx.NamedArgs{
		"since": f.Since, "before": before, "actor": f.Actor, "after": after, "rows": mostRows, "limit": p.Limit + 1,
	})
	if err != nil {
		return nil, "", fmt.Errorf("list actions: %w", admin.Explain(err, "docs/security.md"))
	}
	list, more, err := admin.Collect(rows, p.Limit, func(row pgx.CollectableRow) (a Action, err error) {
		return a, row.Scan(&a.First, &a.Last, &a.Actor, &a.Role, &a.Action, &a.Object, &a.Subject, &a.Reason, &a.Count, &a.Example)
	})
	if err != nil {
		return nil, "", fmt.Errorf("list actions: %w", admin.Explain(err, "docs/security.md"))
	}
	if more {
		next = admin.TimeCursor(list[len(list)-1].Last, "")
	}
	return list, next, nil
}
