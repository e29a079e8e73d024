package participant

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/topics"
)

// allTypes replaces the type in the name of a handler of OnAll.
const allTypes = "all"

// OnAll registers fn as the handler of all events of the hops in from, of any type, also Exhausted and Nothing. fn is called once for all events that
// are in one transaction, at most Config.Batch, so that it can read and write their data in a few statements. The events of a key are in their order.
//
// fn emits no answer. To write the messages that follow from an event, or to schedule deadlines, it passes the event's Context to Outbox and
// Schedule. ctx itself belongs to no message: an entry written with it has no cause, and another id in each run. Config.Timeout limits the whole
// call.
//
// An error rolls back the whole transaction. Mark the error with At if it is about one message: from then on that message runs alone, and only these
// runs count as its attempts, while the others continue together. After an error without At each message runs alone once. So fn must have the same
// effect with one message as with many.
//
// OnAll may also be called while Run runs, for hops whose events have no handler yet. The participant then joins its group again and consumes their
// topics too. Until it has joined, Ready returns an error. A contract does not check these handlers.
//
// A topic has either OnAll or On; both are a mistake that Run reports. With local work a transaction may also have commands and deadlines. An event
// that follows one of these, with the same key, is passed to fn in another call.
func OnAll(p *Participant, from []topics.Hop, fn func(ctx context.Context, tx pgx.Tx, ms []Taken) error) {
	p.onAll(from, &taker{fn}, false)
}

// onAll registers the handlers of OnAll.
func (p *Participant) onAll(from []topics.Hop, all *taker, optional bool) {
	var hs []*handler
	if len(from) == 0 {
		hs = append(hs, &handler{topic: "no topic", mistake: errors.New("events of no hop")})
	}
	for _, hop := range from {
		h := &handler{topic: hop.Events(), name: p.cfg.Group + "/" + allTypes, all: all, optional: optional}
		if hop.IsZero() {
			h.mistake = errors.New("events of no hop")
		}
		hs = append(hs, h)
	}
	if p.extend(hs) {
		return
	}
	for _, h := range hs {
		p.register(h)
	}
}

// A Taken is one message that OnAll passes to its function, its body undecoded.
type Taken struct {
	// Message is the received message, with its attributes. If it had no ce_id, ID is made of its topic id, partition, offset and a hash of its
	// record.
	Message envelope.Message
	// Attempt is the number of this run, counted from 1, as in Command. It is 1 in a batch, since runs in a batch are not counted.
	Attempt int

	ctx context.Context
}

// Context returns the context that OnAll's function got, with the message as the cause of the entries that are written in it:
// correlation, causation, trace, and ids that repeat when the same entries are written again in the same order.
func (t Taken) Context() context.Context {
	if t.ctx == nil { // made by a test
		return context.Background()
	}
	return t.ctx
}

// At marks err as an error about message i of the slice that OnAll passed to fn, counted from 0. At(i, nil) is nil.
func At(i int, err error) error {
	if err == nil {
		return nil
	}
	return located{i, err}
}

// located is the error that At returns. It holds err and the index, in the slice that OnAll passed to its function, of the message that err is about.
type located struct {
	i int
	error
}

func (l located) Unwrap() error { return l.error }

// taker holds a function of OnAll. The handlers of several topics may share it.
type taker struct {
	fn func(ctx context.Context, tx pgx.Tx, ms []Taken) error
}

// run calls the handlers of u.toRun, one after the other. The messages of one OnAll go to its function in one call, as far as the order of their keys
// allows (see along).
func (u *unit) run() error {
	u.callBatch()
	var ran []bool // by index in u.toRun: its OnAll function was called
	for i, m := range u.toRun {
		if ran != nil && ran[i] {
			continue
		}
		if u.setter != nil { // settings that its handler changed must not apply to other messages
			u.setter.handler.sets.Store(true)
			return failedIn{u.setter, conflict{error: errSets}}
		}
		if i > 0 && u.tx.queued+u.tx.answered > maxWritten {
			return errLargeBatch
		}
		if i > 0 && (m.handler.all != nil || m.handler.overtakes.Load() || m.sharesKey(u.toRun[i-1])) { // messages of a key are adjacent
			u.tx.keepOrder()
			u.answersAtCommit = nil
		}
		if m.handler.all == nil {
			err := u.handle(m)
			if err == nil && u.overtook { // the answers could not be queued before its event: a rollback to a savepoint would discard them
				m.handler.overtakes.Store(true)
				err = errOvertook
			}
			if err != nil {
				return failedIn{m, err}
			}
			u.awaits(m)
			continue
		}
		if ran == nil {
			ran = make([]bool, len(u.toRun))
		}
		if err := u.handleAll(u.along(i, ran)); err != nil {
			return err
		}
	}
	return nil
}

// maxWritten limits the answers and the queued statements of the messages of one transaction, in bytes. A few bytes of a command may ask for an answer
// of megabytes, and a batch may have 1,000 commands.
const maxWritten = 64 << 20

// errLargeBatch rolls back a batch. Its messages run again in smaller batches.
var errLargeBatch = fmt.Errorf("the messages of the batch write more than %d MiB", maxWritten>>20)

// awaits records that m's answer is sent with COMMIT, and so after the statements of the handlers that have not run yet.
func (u *unit) awaits(m *message) {
	if !m.handler.answers || len(u.toRun) == 1 {
		return
	}
	if u.answersAtCommit == nil {
		u.answersAtCommit = make(map[string]bool, len(u.toRun))
	}
	u.answersAtCommit[string(m.Key)] = true
}

func (m *message) sharesKey(with *message) bool { return m.Key != nil && bytes.Equal(m.Key, with.Key) }

// along returns the messages for one call of an OnAll function: the message at i of u.toRun, and the later ones with the same function that have not
// run. It leaves out a message behind another handler's message of the same key. It sets ran for the returned messages.
func (u *unit) along(i int, ran []bool) (ms []*message) {
	all := u.toRun[i].handler.all
	var waits *message
	for j := i; j < len(u.toRun); j++ {
		m := u.toRun[j]
		switch {
		case ran[j]:
		case m.handler.all != all, waits != nil && m.sharesKey(waits):
			waits = m
		default:
			ran[j] = true
			ms = append(ms, m)
		}
	}
	return ms
}

// handleAll passes messages to OnAll's function within one time-out.
func (u *unit) handleAll(ms []*message) (err error) {
	w := u.w
	ctx, cancel := context.WithTimeout(u.ctx, w.p.cfg.Timeout)
	defer cancel()
	taken := make([]Taken, len(ms))
	for i, m := range ms {
		own := envelope.WithCause(ctx, m.cause(w.p.cfg.Group))
		if w.p.cfg.Hooks.Handler != nil {
			var end func(error)
			own, end = u.startHandlerHook(own, m)
			defer func() { end(errorOf(m, err)) }()
		}
		taken[i] = Taken{Message: m.Message, Attempt: m.attempts() + 1, ctx: own}
	}
	for _, m := range ms {
		if hook := w.p.cfg.Hooks.BeforeHandler; hook != nil {
			hook(u.delivery(m))
		}
	}
	run := func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
		for i, m := range ms {
			if err := m.handler.callObservers(taken[i].ctx, tx, m); err != nil {
				return Outcome{}, At(i, err)
			}
		}
		return Outcome{}, ms[0].handler.all.fn(ctx, tx, taken)
	}
	tx := u.tx.lend()
	_, err = w.call(ctx, ms[0], run, tx)
	handlerErr := err
	err = u.takeBack(ms[0], tx, handlerErr)
	if w.ctx.Err() == nil && ctx.Err() != nil {
		return tooLong(ctx, w.p.cfg.Timeout, handlerErr)
	}
	var at located
	switch {
	case errors.As(err, &at) && at.i >= 0 && at.i < len(ms):
		return failedIn{ms[at.i], err}
	case errors.As(err, &at):
		return fmt.Errorf("message %d of %d: %w", at.i, len(ms), err)
	}
	return err
}

// errorOf returns err if it is about m or about no single message, and nil if it is about another message.
func errorOf(m *message, err error) error {
	var in failedIn
	if errors.As(err, &in) && in.m != m {
		return nil
	}
	return err
}
