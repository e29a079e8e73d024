package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Nothing was done.
var (
	ErrPaused    = errors.New("paused already")
	ErrNotPaused = errors.New("not paused")
	ErrNoRelay   = errors.New("no relay has published it yet")
)

// A Pause holds for all relays of an outbox.
type Pause struct {
	Since time.Time `json:"since"`
	By
}

// Pause asks all relays of the outbox to publish nothing until Resume, those that begin later too. What is in flight is
// finished; leases are kept. It wants a reason. The error is ErrPaused when somebody did so before.
func (d Desk) Pause(ctx context.Context, by By) error {
	return d.turn(ctx, pauseRelays, ErrPaused, by, WhyPause)
}

// Resume ends a Pause. The error is ErrNotPaused when there is none.
func (d Desk) Resume(ctx context.Context, by By) error {
	return d.turn(ctx, resume, ErrNotPaused, by, "")
}

func (d Desk) turn(ctx context.Context, query string, otherwise error, by By, why string) error {
	if err := by.Check(why); err != nil {
		return err
	}
	shard, err := d.shard(ctx)
	if err != nil {
		return err
	}
	done, err := all(ctx, d.DB, query, pgx.NamedArgs{"shard": shard, "actor": by.Actor, "reason": by.Reason},
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

// shard is the number of the lease that stands for the outbox.
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

// A Turn is a pause or a resume, as it was recorded.
type Turn struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"` // pause or resume
	By
}

// Turns are the last ones, the newest first.
func (d Desk) Turns(ctx context.Context, most int) ([]Turn, error) {
	shard, err := d.shard(ctx)
	if err != nil {
		return nil, err
	}
	return all(ctx, d.DB, listPauses, pgx.NamedArgs{"shard": shard, "rows": most}, func(one pgx.CollectableRow) (t Turn, err error) {
		return t, one.Scan(&t.At, &t.Actor, &t.Action, &t.Reason)
	})
}
