package decisions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// apartName names the deadline that delivers an event which one saga could not take.
const apartName = "apart"

// lastName is the name of the deadline for the last try of an answer whose saga does not exist. It waits until all messages that came before
// this coordinator began are handled, which may take hours after a restore: one of them may start the saga.
const lastName = "last"

// Apart is the body of the deadline apartName, and of the dead letter that it becomes: an event that concerns several sagas and that one
// of them could not take. This saga tries it again in a message of its own, so that the error does not fail the other sagas. A redrive
// tries it again too.
type Apart struct {
	// Saga is the id of the saga that the event is for, or the type of the saga that it is to start.
	Saga string `json:"saga"`
	// Event is the saga.Event as the log stores it.
	Event json.RawMessage `json:"event"`
	// Tries counts how often an answer came before its saga, or before its step.
	Tries int `json:"tries,omitempty"`
}

// MessageType returns the message's ce_type.
func (Apart) MessageType() string { return "troupe.Apart" }

// PlainJSON makes the body JSON whatever codec the flow uses.
func (Apart) PlainJSON() {}

// early is the policy for trying an answer again that came before its saga, or before the command that it answers. If the database has
// lost the last decisions, as after a failover to a standby that lagged, the messages that led to them are read again, perhaps in another
// order. The saga then sends the same commands again, and their hops skip them as duplicates: no other answer comes. So an answer to a
// saga that exists is tried again until the saga takes it or has ended. If the saga does not exist, the answer is ignored after the last
// try, an hour later, or when the earlier messages are handled: see lastName.
var early = retry.Policy{Initial: 250 * time.Millisecond, Cap: 10 * time.Minute, Attempts: 16, NoJitter: true}

// earlyAge is the age at which the answer to a saga that does not exist is not tried again, unless the database has a saga that started
// before the answer. A coordinator with a new database reads answers to sagas that it never had, and one with a restored database reads
// answers to sagas that it has lost.
const earlyAge = 24 * time.Hour

// failed handles a target on which the saga cannot decide: it returns an error if the message has no other target, and otherwise sets
// this one apart.
func (p *pass) failed(t target, why string) error {
	if t.message < 0 || t.alone {
		return at(t.message, retry.Permanent(fmt.Errorf("saga %s: %w: %s", t.id, ErrRefused, why)))
	}
	p.setApart(t)
	return nil
}

func (p *pass) setApart(t target) { p.apart = append(p.apart, t) }

// wait sets apart an answer that came before its saga or its step.
func (p *pass) setEarlyApart(t target) {
	t.tries++
	p.setApart(t)
}

// exists reports whether the pass has loaded a saga that exists.
func (p *pass) exists(id string) bool {
	l := p.sagas[id]
	return l != nil && l.state.Version > 0
}

// foreign reports whether the message that is handled in ctx is older than earlyAge and than all sagas of the database.
func (w *Work) foreign(ctx context.Context) (is bool, err error) {
	const look = "SELECT NOT EXISTS (SELECT FROM troupe.sagas WHERE status = ANY ($1) AND started_at < $2)"
	cause := envelope.CauseOf(ctx)
	if cause == nil || cause.At.IsZero() || w.pass.now.Sub(cause.At) <= earlyAge {
		return false, nil
	}
	err = w.tx.QueryRow(ctx, look, Statuses, cause.At).Scan(&is)
	return is, err
}

// scheduleApart schedules each target that was set apart as a message of its own to this hop, due at once, or later if it is early.
func (w *Work) scheduleApart(ctx context.Context, ds extension.Deadlines, taken []participant.Taken) error {
	for _, why := range w.pass.notKept {
		w.d.cfg.Log.Warn().Str("why", why).Msg("an event is not kept for a saga that has not started; another saga has taken it")
	}
	for _, t := range w.pass.apart {
		of := t.id
		if t.start.Kind != "" {
			of, t.event = t.d.Spec().Saga, t.start
		}
		event, err := json.Marshal(t.event)
		if err != nil {
			return err
		}
		if t.message >= 0 && taken != nil {
			ctx = taken[t.message].Context()
		}
		var after time.Duration
		name := apartName
		if t.tries > 0 {
			again, err := w.retriesEarly(ctx, t)
			if err != nil {
				return err
			}
			if !again {
				continue
			}
			if after = early.Wait(t.tries); t.tries == early.Attempts+1 && !w.pass.exists(t.id) {
				name, after = lastName, 0
			}
		}
		if err := ds.Schedule(ctx, extension.Deadline{
			Name: name, Scope: scopeOf(of, event), Key: of, Body: Apart{of, event, t.tries}, After: after,
		}); err != nil {
			return err
		}
	}
	return nil
}

// waits reports whether t, an early answer, is tried again, and logs an answer that is not, or that has waited for an hour.
func (w *Work) retriesEarly(ctx context.Context, t target) (again bool, err error) {
	again = w.pass.exists(t.id)
	why := "answer waits: its saga has not sent the command that it answers, as if the saga's database was set back"
	if !again {
		foreign, err := w.foreign(ctx)
		if err != nil {
			return false, err
		}
		again = !foreign && t.tries <= early.Attempts+1
		why = "answer ignored: its saga does not exist"
	}
	if !again || t.tries == early.Attempts+1 && w.pass.exists(t.id) {
		w.d.cfg.Log.Warn().Str("saga", t.id).Str("step", t.event.Step).Str("message_id", t.event.Message).Msg(why)
	}
	return again, nil
}

// scopeOf returns the scope of the deadline for an event that was set apart. Messages of two hops may have equal ids, so it also
// depends on the event.
func scopeOf(saga string, event []byte) string {
	sum := sha256.Sum256(event)
	return saga + "/" + hex.EncodeToString(sum[:])
}

// retrySetApart tries again the event that a saga could not take before.
func (d *Decider) retrySetApart(ctx context.Context, tx pgx.Tx, due participant.Due[Apart]) error {
	e, err := saga.ReadEvent(due.Body.Event)
	if err != nil {
		return retry.Permanent(err)
	}
	w := d.Begin(tx)
	return w.Finish(ctx, nil, w.pass.retrySetApart(ctx, due.Body, e))
}

func (p *pass) retrySetApart(ctx context.Context, body Apart, e saga.Event) error {
	switch e.Kind {
	case saga.Started, saga.Answered, saga.Observed:
	default: // an operator's action, and this message proves no operator
		return retry.Permanent(fmt.Errorf("saga %s: an event of kind %q is not tried again", body.Saga, e.Kind))
	}
	t := target{message: -1, id: body.Saga, event: e, tries: body.Tries}
	if e.Kind == saga.Started {
		d, err := p.Named(body.Saga)
		starts := false
		if err == nil {
			m := Message{ID: e.Message, Hop: e.Hop, Type: e.Type, Fields: e.Fields, Correlation: e.Correlation}
			t, starts, err = startedBy(d, -1, m, func() (time.Time, error) { return p.clock(ctx) })
		}
		if p.clockErr != nil {
			return p.clockErr
		}
		if err != nil || !starts {
			return retry.Permanent(err)
		}
	}
	if err := p.load(ctx, []string{t.id}); err != nil {
		return err
	}
	if e.Kind == saga.Started {
		return p.start(ctx, t)
	}
	switch fx := p.decide(-1, t.id, e); {
	case fx.Refused != "":
		return p.failed(t, fx.Refused)
	case fx.Early:
		p.setEarlyApart(t)
	}
	return p.unstash(ctx, -1, t.id)
}
