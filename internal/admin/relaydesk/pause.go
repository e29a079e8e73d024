package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// Errors of Pause and Resume. Nothing was changed.
var (
	ErrPaused    = errors.New("paused already")
	ErrNotPaused = errors.New("not paused")
	ErrNoRelay   = errors.New("no relay has published it yet")
)

// A Pause applies to all relays of an outbox.
type Pause struct {
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
}

// Pause makes all relays of the outbox publish nothing until Resume, also relays that start later. Rows in flight are
// finished; leases are kept. It requires a reason. The error wraps ErrPaused if the outbox is paused already, and ErrNoRelay
// if no relay has published this table with a mapping yet.
func (d Desk) Pause(ctx context.Context, by admin.Actor) error {
	if err := by.CheckReasoned(); err != nil {
		return err
	}
	return d.turn(ctx, pauseRelays, ErrPaused, by)
}

// Resume ends a Pause. The error wraps ErrNotPaused if there is none.
func (d Desk) Resume(ctx context.Context, by admin.Actor) error {
	if err := by.Check(); err != nil {
		return err
	}
	return d.turn(ctx, resume, ErrNotPaused, by)
}

func (d Desk) turn(ctx context.Context, query string, otherwise error, by admin.Actor) error {
	shard, err := d.shard(ctx)
	if err != nil {
		return err
	}
	done, err := all(ctx, d.DB, query, pgx.NamedArgs{"shard": shard, "actor": by.Name, "reason": by.Reason},
		func(one pgx.CollectableRow) (at time.Time, err error) { return at, one.Scan(&at, nil) })
	switch {
	case err != nil:
		return err
	case len(done) == 0:
		return fmt.Errorf("%s is %w", d.Table.title(), otherwise)
	}
	return nil
}

func (t Table) title() string {
	if t.Name == "" {
		return "troupe.outbox"
	}
	return t.Name
}

// shard returns the number of the outbox's lease in which a pause is stored.
func (d Desk) shard(ctx context.Context) (int, error) {
	if !d.mapped() {
		return 0, nil
	}
	found, err := all(ctx, d.DB, findShard, pgx.NamedArgs{"table": d.Table.Name}, pgx.RowTo[int])
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: %w", d.Table.Name, ErrNoRelay)
	}
	if err != nil {
		return 0, err
	}
	return found[0], nil
}

// A Turn is the record of one pause or resume.
type Turn struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"` // pause or resume
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
}

// Turns returns the most recent pauses and resumes, newest first, most at most.
func (d Desk) Turns(ctx context.Context, most int) ([]Turn, error) {
	shard, err := d.shard(ctx)
	if err != nil {
		return nil, err
	}
	return all(ctx, d.DB, listPauses, pgx.NamedArgs{"shard": shard, "rows": most}, func(one pgx.CollectableRow) (t Turn, err error) {
		return t, one.Scan(&t.At, &t.Actor, &t.Action, &t.Reason)
	})
}
