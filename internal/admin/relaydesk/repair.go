package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/outboxrow"
)

// Errors of Retry, Discard and Show. Nothing was changed.
var (
	ErrNotParked = errors.New("not parked")
	ErrNoFailure = errors.New("no failed row")
	ErrSeveral   = errors.New("several topics have a parked row with this id: give the topic too (--topic, or ?topic=)")
)

// A Repaired identifies a row on which an action was done.
type Repaired struct {
	Position int64  `json:"position"`
	Topic    string `json:"topic"`
}

// An action has one statement for troupe.outbox (own), and one for tables with a mapping.
type action struct {
	own, mapped string
	check       func(admin.Actor) error
}

var (
	retrying   = action{retryRows, retryMapped, admin.Actor.Check}
	discarding = action{discardRows, discardMapped, admin.Actor.CheckReasoned}
)

// A RowID identifies a failed row. Rows of several topics may have one id; then Topic tells them apart. An empty Topic is any topic.
type RowID struct {
	ID    uuid.UUID
	Topic string
}

// Retry lets a parked row be tried again at once, at its place in the order of its key. The error wraps ErrNotParked if the
// row is not parked.
func (d Desk) Retry(ctx context.Context, row RowID, by admin.Actor) (Repaired, error) {
	return d.one(ctx, retrying, row, by)
}

// Discard removes a parked row from the outbox permanently, and the rows that wait behind it are published. A table with a
// mapping keeps its row; the relay deletes its own copy. Discard requires a reason. The record of it keeps the row. The error
// wraps ErrNotParked if the row is not parked. It wraps ErrSeveral if rows of several topics are parked under the id, as the copy of a dead
// letter and a redrive of it may be, and row has no topic.
func (d Desk) Discard(ctx context.Context, row RowID, by admin.Actor) (Repaired, error) {
	done, err := d.one(ctx, discarding, row, by)
	if errors.Is(err, ErrNotParked) {
		err = cmp.Or(d.CheckOneTopic(ctx, row), err)
	}
	return done, err
}

// CheckOneTopic returns an error that wraps ErrSeveral if Discard would refuse a row because rows of several topics are parked under its id.
func (d Desk) CheckOneTopic(ctx context.Context, row RowID) error {
	if d.mapped() || row.Topic != "" {
		return nil
	}
	topics, err := all(ctx, d.DB, listTopics, pgx.NamedArgs{"id": [16]byte(row.ID)}, pgx.RowTo[string])
	if err == nil && len(topics) > 1 {
		err = fmt.Errorf("%s: %w: %s", row.ID, ErrSeveral, strings.Join(topics, ", "))
	}
	return err
}

// RetryTopic calls Retry for all parked rows of a topic, lowest position first. It returns the number of rows; with an error,
// the number of rows done before it.
func (d Desk) RetryTopic(ctx context.Context, topic string, by admin.Actor) (int, error) {
	return d.many(ctx, retrying, topic, by)
}

// DiscardTopic calls Discard for all parked rows of a topic, in the order and with the results of RetryTopic.
func (d Desk) DiscardTopic(ctx context.Context, topic string, by admin.Actor) (int, error) {
	return d.many(ctx, discarding, topic, by)
}

func (d Desk) one(ctx context.Context, a action, row RowID, by admin.Actor) (Repaired, error) {
	if err := a.check(by); err != nil {
		return Repaired{}, err
	}
	done, err := d.act(ctx, a, by, pgx.NamedArgs{"id": [16]byte(row.ID), "topic": row.Topic, "rows": 1})
	switch {
	case err != nil:
		return Repaired{}, err
	case len(done) == 0:
		return Repaired{}, fmt.Errorf("%s is %w: perhaps it was published or discarded meanwhile; see outbox-relay parked list", row.ID, ErrNotParked)
	}
	return done[0], nil
}

// atOnce limits the rows of one statement, and so for how long it locks them.
const atOnce = 500

func (d Desk) many(ctx context.Context, a action, topic string, by admin.Actor) (n int, err error) {
	if err := a.check(by); err != nil {
		return 0, err
	}
	for after := int64(0); ; { // a row that is parked again meanwhile is at or below after, and is not done twice
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

func (d Desk) act(ctx context.Context, a action, by admin.Actor, args pgx.NamedArgs) ([]Repaired, error) {
	query := a.own
	if d.mapped() {
		query = a.mapped
	}
	for name, value := range map[string]any{
		"table": d.Table.Name, "id": nil, "topic": "", "after": int64(0), "actor": by.Name, "reason": by.Reason, "channel": outboxrow.Channel,
	} {
		if _, given := args[name]; !given {
			args[name] = value
		}
	}
	return all(ctx, d.DB, query, args, func(one pgx.CollectableRow) (r Repaired, err error) {
		return r, one.Scan(&r.Position, &r.Topic, nil)
	})
}
