package decisions

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/participant"
)

// wakeName names the deadline of a saga in troupe.deadlines. When it is due, the coordinator checks the saga's own
// deadlines, which are stored in its state. It is not moved when the saga's next deadline becomes later, so that most sagas
// write one such row.
const wakeName = "saga"

// grantName names the deadline that wakes a saga at once, since the lock that it waited for was granted. Unlike wakeName it
// does not wait for events that came before it.
const grantName = "granted"

// Wake is the body of the deadlines wakeName and grantName.
type Wake struct {
	Saga string `json:"saga"` // its id
}

// MessageType returns the message's ce_type.
func (Wake) MessageType() string { return "troupe.Wake" }

// PlainJSON makes the body JSON whatever codec the flow uses.
func (Wake) PlainJSON() {}

// wake handles a saga's deadlines that are due.
func (d *Decider) wake(ctx context.Context, tx pgx.Tx, due participant.Due[Wake]) error {
	w := d.Begin(tx)
	return w.Finish(ctx, nil, w.pass.due(ctx, -1, due.Body.Saga))
}

// schedule stores when the saga of c is woken next, if it is woken at all.
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

// grant returns the deadline that wakes a saga at once, because it was granted a lock.
func grant(id string, now time.Time) extension.Deadline {
	_, key, _ := strings.Cut(id, "/")
	return extension.Deadline{Name: grantName, Scope: id, Key: key, At: now, Body: Wake{id}}
}
