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

// searchName names the deadline at which the sagas of a value, or one saga, search the stash, since another saga has left events there. It is due at
// once. If its message becomes a dead letter, they do not search until you redrive it.
const searchName = "search-stash"

// Wake is the body of the deadlines wakeName, grantName and searchName.
type Wake struct {
	Saga string `json:"saga"` // the saga's id; for a search by all sagas of a value: their type
	// Variable and Value are set for a search by all sagas of a value: see Association. Value is as it is stored.
	Variable string `json:"variable,omitempty"`
	Value    string `json:"value,omitempty"`
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
	return ds.Schedule(ctx, extension.Deadline{Name: wakeName, Scope: id, Key: c.State.Key, At: c.WakeAt, Body: Wake{Saga: id}})
}

// grant returns the deadline that wakes a saga now, because it was granted its lock.
func grant(id string, now time.Time) extension.Deadline {
	_, key, _ := strings.Cut(id, "/")
	return extension.Deadline{Name: grantName, Scope: id, Key: key, At: now, Body: Wake{Saga: id}}
}

// searchAt returns the deadline for s. The scope for a value begins with a space, so that it is no saga's id.
func searchAt(s search, now time.Time) extension.Deadline {
	d := grant(s.id, now)
	if s.id == "" {
		d.Key = s.by.Saga + "/" + s.by.Variable + "/" + s.by.Value
		d.Scope, d.Body = " "+d.Key, Wake{Saga: s.by.Saga, Variable: s.by.Variable, Value: s.by.Value}
	}
	d.Name = searchName
	return d
}

// search handles the deadline searchName.
func (d *Decider) search(ctx context.Context, tx pgx.Tx, due participant.Due[Wake]) error {
	s := search{id: due.Body.Saga}
	if due.Body.Variable != "" {
		s = search{by: Association{due.Body.Saga, due.Body.Variable, due.Body.Value}}
	}
	w := d.Begin(tx)
	return w.Finish(ctx, nil, w.pass.searchStash(ctx, s))
}
