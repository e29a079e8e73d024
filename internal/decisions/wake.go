package decisions

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/participant"
)

// wakeName names the deadline by which the participant wakes a saga. When its row of troupe.deadlines is due, a member of the group
// marks the row and writes the deadline's message to the outbox, in one transaction. The relay publishes the message to the
// coordinator's commands. The coordinator then checks the deadlines that are stored in the saga's state, and schedules the next wake. If
// the saga's earliest deadline becomes later, the row is not changed: the wake then finds nothing due. So most sagas write one such row.
const wakeName = "saga"

// grantName names the deadline that wakes a saga at once, because the saga was granted its lock. Unlike wakeName, it is not delayed
// until earlier events are handled. If this wake becomes a dead letter, the saga keeps the lock and stays waiting, and so do the sagas
// behind it. Only a redrive of the dead letter, or saga.ActAbandon, helps then.
const grantName = "granted"

// searchName names the deadline at which a saga searches the stash, since another saga has left events there. It is due at once. If its message
// becomes a dead letter, the saga does not search until you redrive it.
const searchName = "search-stash"

// Wake is the body of the deadlines wakeName, grantName and searchName.
type Wake struct {
	Saga string `json:"saga"` // the saga's id
}

// MessageType returns the message's ce_type.
func (Wake) MessageType() string { return "troupe.Wake" }

// PlainJSON selects JSON for the body, whatever codec the flow uses.
func (Wake) PlainJSON() {}

// wake handles the deadlines wakeName and grantName.
func (d *Decider) wake(ctx context.Context, tx pgx.Tx, due participant.Due[Wake]) error {
	w := d.Begin(tx)
	return w.Finish(ctx, nil, w.pass.due(ctx, due.Body.Saga))
}

// schedule schedules the next wake of the saga of c, at c.WakeAt. If WakeAt is zero, it cancels the wake.
func (w *Work) schedule(ctx context.Context, ds extension.Deadlines, c Change) error {
	id := c.State.ID()
	if c.WakeAt.IsZero() {
		return ds.Cancel(ctx, wakeName, id)
	}
	if w.pass.wake[id] {
		return ds.Schedule(ctx, grant(id, c.WakeAt))
	}
	return ds.Schedule(ctx, extension.Deadline{Name: wakeName, Scope: id, Key: c.State.Key, At: c.WakeAt, Body: Wake{id}})
}

// grant returns the deadline that wakes a saga now, because it was granted its lock.
func grant(id string, now time.Time) extension.Deadline {
	_, key, _ := strings.Cut(id, "/")
	return extension.Deadline{Name: grantName, Scope: id, Key: key, At: now, Body: Wake{id}}
}

// searchOf returns the deadline at which saga id searches the stash.
func searchOf(id string, now time.Time) extension.Deadline {
	d := grant(id, now)
	d.Name = searchName
	return d
}

// search handles the deadline searchName.
func (d *Decider) search(ctx context.Context, tx pgx.Tx, due participant.Due[Wake]) error {
	w := d.Begin(tx)
	return w.Finish(ctx, nil, w.pass.searchStash(ctx, due.Body.Saga))
}
