package desk

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/outbox"
)

// Nothing was done.
var (
	ErrNotParked = errors.New("not parked")
	ErrNoTrouble = errors.New("not in trouble")
)

// A Repaired row is what an action was done to.
type Repaired struct {
	Position int64  `json:"position"`
	Topic    string `json:"topic"`
}

// An action has a statement for each kind of table.
type action struct{ own, mapped string }

var (
	retrying   = action{retryRows, retryMapped}
	discarding = action{discardRows, discardMapped}
)

// Retry lets a parked row be tried again at once, in its old place. The error is ErrNotParked when it waits for nobody.
func (d Desk) Retry(ctx context.Context, id uuid.UUID, by By) (Repaired, error) {
	return d.one(ctx, retrying, id, by, "")
}

// Discard takes a parked row out of the outbox for good, and what is behind it in its key goes on. It wants a reason; the
// record keeps the row. The error is ErrNotParked when it waits for nobody.
func (d Desk) Discard(ctx context.Context, id uuid.UUID, by By) (Repaired, error) {
	return d.one(ctx, discarding, id, by, WhyDiscard)
}

// RetryTopic is Retry of all parked rows of a topic, lowest position first. It says how many they were; with an error, how
// many were done.
func (d Desk) RetryTopic(ctx context.Context, topic string, by By) (int, error) {
	return d.many(ctx, retrying, topic, by, "")
}

// DiscardTopic is Discard of all parked rows of a topic, as RetryTopic.
func (d Desk) DiscardTopic(ctx context.Context, topic string, by By) (int, error) {
	return d.many(ctx, discarding, topic, by, WhyDiscard)
}

func (d Desk) one(ctx context.Context, a action, id uuid.UUID, by By, why string) (Repaired, error) {
	if err := by.Check(why); err != nil {
		return Repaired{}, err
	}
	done, err := d.act(ctx, a, by, pgx.NamedArgs{"id": [16]byte(id), "rows": 1})
	switch {
	case err != nil:
		return Repaired{}, err
	case len(done) == 0:
		return Repaired{}, fmt.Errorf("%s is %w: perhaps it was published or discarded meanwhile; see outbox-relay parked list", id, ErrNotParked)
	}
	return done[0], nil
}

// atOnce bounds what one statement does, and so for how long it locks.
const atOnce = 500

func (d Desk) many(ctx context.Context, a action, topic string, by By, why string) (n int, err error) {
	if err := by.Check(why); err != nil {
		return 0, err
	}
	for after := int64(0); ; { // one that is parked anew meanwhile is below
		done, err := d.act(ctx, a, by, pgx.NamedArgs{"topic": topic, "after": after, "rows": atOnce})
		if err != nil {
			return n, err
		}
		n += len(done)
		if len(done) < atOnce {
			return n, nil
		}
		for _, r := range done {
			after = max(after, r.Position)
		}
	}
}

func (d Desk) act(ctx context.Context, a action, by By, args pgx.NamedArgs) ([]Repaired, error) {
	query := a.own
	if d.mapped() {
		query = a.mapped
	}
	for name, value := range map[string]any{
		"table": d.Table.Name, "id": nil, "topic": "", "after": int64(0), "actor": by.Actor, "reason": by.Reason, "channel": outbox.Channel,
	} {
		if _, given := args[name]; !given {
			args[name] = value
		}
	}
	return all(ctx, d.DB, query, args, func(one pgx.CollectableRow) (r Repaired, err error) {
		return r, one.Scan(&r.Position, &r.Topic, nil)
	})
}
