package decisions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// retryName names the deadline at which a saga gets an event again: see RetryEvent.
const retryName = "retry-event"

// lastRetryName names the deadline for the last try of an answer whose saga does not exist. The participant fires it only after the group
// has handled the messages that its topics had when the participant last started, joined the group again or reached its database again.
// One of these messages may start the saga. After a restore this may take hours.
const lastRetryName = "last-retry"

// A RetryEvent is the body of the deadlines retryName and lastRetryName: one event, which one saga gets again. An event is tried again in
// three cases:
//
//   - Its message is also for other sagas, and this saga refuses the event. The other sagas take the message. The event for this saga is
//     tried again at once, in a transaction of its own.
//   - Its message is also for other sagas, and the stash has no room for it. The event is tried again at once, too.
//   - It is an answer that came before its saga, or before the command that it answers. It is tried again later: see early.
//
// If the saga refuses the event in the next try, or there is still no room, the deadline's message becomes a dead letter. A redrive of the
// dead letter tries the event once more.
type RetryEvent struct {
	// Saga is the id of the saga that gets the event. For a start it is the type of the saga. For an event that came before its saga, and that finds it
	// by a variable, it is an id with an empty key.
	Saga string `json:"saga"`
	// Variable and Value are the association by which an awaited event finds its sagas, as in Association. They are empty for another event.
	Variable string `json:"variable,omitempty"`
	Value    string `json:"value,omitempty"`
	// Shared reports that another saga has used the awaited event, or has it too.
	Shared bool `json:"shared,omitempty"`
	// Event is the saga.Event as the log stores it.
	Event json.RawMessage `json:"event"`
	// Tries counts how often an answer was decided on before its saga existed, or before the saga had sent the command that it answers. It is 0
	// for an event that is no answer.
	Tries int `json:"tries,omitempty"`
}

// MessageType returns the message's ce_type.
func (RetryEvent) MessageType() string { return "troupe.RetryEvent" }

// PlainJSON selects JSON for the body, whatever codec the flow uses.
func (RetryEvent) PlainJSON() {}

// Scope returns the scope of the deadline. Messages of two hops may have equal ids, so it also depends on the event. An event may find a saga by two
// variables, so it depends on the variable.
func (a RetryEvent) Scope() string {
	sum := sha256.Sum256(append(slices.Clip(a.Event), a.Variable...))
	return a.Saga + "/" + hex.EncodeToString(sum[:])
}

// early is the policy by which an early answer is tried again: an answer that came before its saga, or before the command that it answers.
// An answer is early if the database has lost the saga's last decisions, as after a failover to a standby that lagged. The messages that
// led to these decisions are read again, perhaps in another order. The saga then sends the same commands again. Their hops skip the
// commands as duplicates and do not answer a second time. So the early answer must not be lost.
//
// If the saga exists, the answer is tried again until the saga takes it or has ended. If the saga does not exist, the answer is ignored
// after an hour, or later: see lastRetryName.
//
// A warning is logged when an answer has waited for an hour, and when it is ignored. Before that, an operator sees the answer only in
// troupe.deadlines: as a row with the name retry-event (or last-retry) and the id of the saga as its key.
var early = retry.Policy{Initial: 250 * time.Millisecond, Cap: 10 * time.Minute, Attempts: 16, NoJitter: true}

// earlyAge is the age from which an answer is ignored at once if its saga does not exist and all sagas of the database started later
// than the answer. Such an answer is for a saga that this database never had or has lost: a coordinator with a new or a restored
// database reads old answers.
const earlyAge = 24 * time.Hour

// failed handles a target that its saga refuses, for the reason why. If the message has no other target, failed returns a permanent
// error, and the message becomes a dead letter. Otherwise the target is tried again by itself. An awaited event that is tried again may have several
// targets too: see observeAgain.
func (p *pass) failed(t target, why string) error {
	if t.alone || t.message < 0 && t.event.Kind != saga.Observed {
		return at(t.message, retry.Permanent(fmt.Errorf("saga %s: %w: %s", t.id, ErrRefused, why)))
	}
	t.why = why
	p.retryLater(t)
	return nil
}

// retryLater notes a target for which scheduleRetries schedules a RetryEvent.
func (p *pass) retryLater(t target) { p.retries = append(p.retries, t) }

// retryEarly is retryLater for an early answer. It counts the try.
func (p *pass) retryEarly(t target) {
	t.tries++
	t.why = "the answer is early"
	p.retryLater(t)
}

// exists reports whether the pass has loaded saga id, and the saga exists.
func (p *pass) exists(id string) bool {
	l := p.sagas[id]
	return l != nil && l.state.Version > 0
}

// foreign reports whether the message that is handled in ctx is older than earlyAge, and older than all sagas of the database.
func (w *Work) foreign(ctx context.Context) (is bool, err error) {
	const look = "SELECT NOT EXISTS (SELECT FROM troupe.sagas WHERE status = ANY ($1) AND started_at < $2)"
	cause := envelope.CauseOf(ctx)
	if cause == nil || cause.At.IsZero() || w.pass.now.Sub(cause.At) <= earlyAge {
		return false, nil
	}
	err = w.tx.QueryRow(ctx, look, Statuses, cause.At).Scan(&is)
	return is, err
}

// scheduleRetries schedules a deadline with a RetryEvent for each target that retryLater has noted. The deadline is due at once, or later
// for an early answer. taken has the handled messages, as for End.
func (w *Work) scheduleRetries(ctx context.Context, ds extension.Deadlines, taken []participant.Taken) error {
	for _, t := range w.pass.retries {
		of, key := t.id, t.id
		if t.start.Kind != "" {
			of, t.event = t.d.Spec().Saga, t.start
		}
		if _, saga, _ := strings.Cut(t.id, "/"); t.start.Kind != "" || saga == "" {
			key = "" // of no saga: the key of the handled message, by which an erasure finds it
		}
		event, err := json.Marshal(t.event)
		if err != nil {
			return err
		}
		w.pass.size += len(event)
		if err := w.pass.checkSize(t.message, len(w.pass.retries) > 1); err != nil {
			return err
		}
		if t.message >= 0 && taken != nil {
			ctx = taken[t.message].Context()
		}
		var after time.Duration
		name := retryName
		if t.tries > 0 {
			again, err := w.keepsRetrying(ctx, t)
			if err != nil {
				return err
			}
			if !again {
				continue
			}
			if after = early.Wait(t.tries); t.tries == early.Attempts+1 && !w.pass.exists(t.id) {
				name, after = lastRetryName, 0
			}
		}
		body := RetryEvent{Saga: of, Variable: t.by.Variable, Value: t.by.Value, Shared: t.shared, Event: event, Tries: t.tries}
		err = ds.Schedule(ctx, extension.Deadline{Name: name, Scope: body.Scope(), Key: key, Body: body, After: after})
		if errors.Is(err, outbox.ErrTooLarge) {
			err = fmt.Errorf("saga %s cannot take %s of %s now (%s), and the event is too large to be tried again for this saga alone: "+
				"redrive the message when the saga can take it: %w", of, t.event.Type, t.event.Hop, t.why, err)
		}
		if err != nil {
			return at(t.message, err)
		}
	}
	return nil
}

// keepsRetrying reports whether t, an early answer, is tried again. If t is ignored, or has waited for an hour, it adds a warning, which
// CallHooks logs after the commit.
func (w *Work) keepsRetrying(ctx context.Context, t target) (again bool, err error) {
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
		w.Warn(func() {
			w.d.cfg.Log.Warn().Str("saga", t.id).Str("step", t.event.Step).Str("message_id", t.event.Message).Msg(why)
		})
	}
	return again, nil
}

// handleRetry handles the deadlines retryName and lastRetryName. It decides once more on the event in the deadline's body, for the saga
// that the body names.
func (d *Decider) handleRetry(ctx context.Context, tx pgx.Tx, due participant.Due[RetryEvent]) error {
	e, err := saga.ReadEvent(due.Body.Event)
	if err != nil {
		return retry.Permanent(err)
	}
	w := d.Begin(tx)
	return w.Finish(ctx, nil, w.pass.retryEvent(ctx, due.Body, e))
}

// retryEvent decides once more on e, the event in body. A start is evaluated again with the type's current definition.
func (p *pass) retryEvent(ctx context.Context, body RetryEvent, e saga.Event) error {
	switch e.Kind {
	case saga.Started, saga.Answered, saga.Observed:
	default: // such as an operator's action: a message does not prove that an operator sent it
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
	if e.Kind == saga.Observed {
		return p.observeAgain(ctx, t, body)
	}
	switch fx := p.decide(-1, t.id, e); {
	case fx.Refused != "":
		return p.failed(t, fx.Refused)
	case fx.Early:
		p.retryEarly(t)
	}
	return p.unstash(ctx, -1, t.id)
}

// observeAgain handles an awaited event that a saga has refused, or for which there was no room. If the saga has ended since, or does not await the
// event any more, or there was none, the event is for the other sagas of its value, as an event that comes now, unless one of them had it before.
func (p *pass) observeAgain(ctx context.Context, t target, body RetryEvent) error {
	name, key, _ := strings.Cut(t.id, "/")
	t.by, t.alone, t.shared = Association{Saga: name, Variable: body.Variable, Value: cmp.Or(body.Value, key)}, true, body.Shared
	if p.takes(t) {
		return p.give(ctx, t, []string{t.id})
	}
	if t.shared || t.by.Variable == "" && p.exists(t.id) {
		p.decide(-1, t.id, t.event) // records why it is ignored
		return nil
	}
	if t.by.Variable != "" {
		t.id = ""
	}
	p.awaiting(func(other string, awaited []saga.Answer, stash time.Duration) {
		m := Message{Hop: t.event.Hop, Type: t.event.Type, Key: key, Fields: t.event.Fields}
		if other == name && slices.Contains(associationsOf(other, awaited, m), t.by) {
			t.stash = max(t.stash, stash)
		}
	})
	return p.observe(ctx, t)
}

// takes reports whether the saga of t uses the event of t now or later, refuses it, or has used it before.
func (p *pass) takes(t target) bool {
	l := p.sagas[t.id]
	if l.d == nil || l.state.Ended() {
		return false
	}
	if slices.ContainsFunc(l.state.Steps, func(ss saga.StepState) bool { return ss.Message == t.event.Message && ss.Message != "" }) {
		return true
	}
	_, fx := saga.Decide(l.d, l.state, t.event, p.now)
	return fx.Ignored == "" || fx.Early
}
