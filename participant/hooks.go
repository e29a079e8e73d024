package participant

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
)

// Hooks are called as messages are handled, for metrics, traces and tests that must stop at an exact point. Each may be nil. A hook is called by the
// goroutine that does the work, which waits for the hook, so several may run at once. A panic in a hook ends the process.
//
// Every message that Fetched counts is reported to AfterCommit, Held or Passed, unless its partition moves before its turn: then it is delivered
// again. A message that was reported to Held is reported once more when it leaves troupe.held, with Held set, to AfterCommit or Passed.
//
// A member reports each delivery once. But if the process ends after the commit and before the hook, no hook reports the effect. A message that came
// from a topic is then delivered again, and reported to Passed. The end of a message of troupe.held, or of local work, is not reported at all. A
// message that passed may be reported again, too.
type Hooks struct {
	// Fetched is called with the number of messages of a partition that came in one fetch, before their turn.
	Fetched func(topic string, partition int32, messages int)
	// Transaction is called in a transaction before its handlers run, with its messages. It returns the context for the handlers, and a function,
	// which may be nil. The function is called when the transaction has ended: with nil, or with the error that rolled it back.
	Transaction func(context.Context, []Delivery) (context.Context, func(error))
	// Handler is called before a handler, with its context. It returns the context for the handler, and a function, which may be nil. If
	// the message runs alone, the function is called when the transaction has ended, and so gets an error of the commit too; in a batch
	// it is called when the handler has returned.
	Handler func(context.Context, Delivery) (context.Context, func(Delivery))
	// BeforeHandler is called in the transaction, after the inbox row and before the handler.
	BeforeHandler func(Delivery)
	// BeforeCommit is called when everything is written, the outcome too; for dead letters as well.
	BeforeCommit func(Delivery)
	// AfterCommit is called when a message has taken effect or is a dead letter, before its offset is marked.
	AfterCommit func(Delivery)
	// Failed is called for each run that counts as an attempt, once the failure is recorded. If the process ends in between, the attempt counts and
	// no hook reports it.
	Failed func(Delivery)
	// Late is called when the message of a deadline was ignored: the deadline was cancelled or scheduled again after it had fired, has not fired,
	// or has another key or payload.
	Late func(Delivery)
	// Fired is called when deadlines that were due have become messages in the outbox. If the process ends before the call, no member reports these
	// deadlines.
	Fired func(Fired)
	// Held is called when a message from the topic was stored in troupe.held: after its first attempt failed, or, with no Err, since it waits behind
	// another. If the process ends before the call, no member reports the message to Held.
	Held func(Delivery)
	// Passed is called for each message that ended without effect.
	Passed func(Passed)
	// Breaker is called when a partition begins to wait for a dependency that is away, and when it continues.
	Breaker func(Breaker)
	// BeforeOffsets is called with the offsets about to be committed, by topic and partition: the next to be read.
	BeforeOffsets func(map[string]map[int32]int64)
	// AfterOffsets is called with the map that BeforeOffsets got, once the broker has stored these offsets. It is not called if the commit failed.
	AfterOffsets func(map[string]map[int32]int64)
}

// A Delivery is one run of one message.
type Delivery struct {
	Message   envelope.Message
	Partition int32
	Offset    int64
	Handler   string           // group/type; the group alone if no handler fits
	Attempt   int              // counted from 1
	Took      time.Duration    // since the run began
	Outcome   envelope.Outcome // BeforeCommit and AfterCommit; none for events that were handled
	Class     Class            // Failed, dead letters, and the end of Handler if the error is about the message
	Err       error            // Failed, dead letters and the end of Handler
	Batch     int              // how many messages the transaction has
	Held      bool             // it came from troupe.held
}

// Passed is a message that ended without effect.
type Passed struct {
	Topic     string
	Partition int32
	Offset    int64
	// Reason is one of
	//
	//	redelivered  its offset had ended before
	//	duplicate    its identity had ended before: it was sent again, or its commit's answer was lost
	//	unhandled    an event of a type without a handler here, or one of this hop that was handled when it was written
	//	elsewhere    an event that was redriven for another group, or a message that another group of the hop retries
	//	later        it went to a retry topic, from which it comes again
	//	cancelled    a held command that its compensation has overtaken
	//	skipped      the last offset of a batch that could not be read and that an operator skipped
	//	not rebuilt  it was handled before, and a rebuild of other handlers reads it again
	Reason string
	Held   bool // it came from troupe.held
}

// The values of Passed.Reason.
const (
	reasonRedelivered = "redelivered"
	reasonDuplicate   = "duplicate"
	reasonUnhandled   = "unhandled"
	reasonElsewhere   = "elsewhere"
	reasonLater       = "later"
	reasonCancelled   = "cancelled"
	reasonSkipped     = "skipped"
	reasonNotRebuilt  = "not rebuilt"
)

// Breaker reports that a partition waits for a dependency that is away, or, without Err, that it continues.
type Breaker struct {
	Topic     string
	Partition int32
	What      string // as given to Unavailable, or "the database"
	Err       error
}

func tell[T any](hook func(T), of T) {
	if hook != nil {
		hook(of)
	}
}

func (w *worker) tellFetched(records []*kgo.Record) {
	hook := w.p.cfg.Hooks.Fetched
	if hook == nil {
		return
	}
	n := 0
	for _, r := range records {
		if !r.Attrs.IsControl() {
			n++
		}
	}
	if n > 0 {
		hook(w.topic, w.id, n)
	}
}

// tellPassed calls Hooks.Passed for each message of ended that had no effect.
func (w *worker) tellPassed(ended ...*message) {
	hook := w.p.cfg.Hooks.Passed
	if hook == nil {
		return
	}
	for _, m := range ended {
		if m.passed != "" {
			hook(Passed{w.topic, w.id, m.offset, m.passed, m.held != nil})
		}
	}
}

func (w *worker) tellHeld(waiting ...*message) {
	hook := w.p.cfg.Hooks.Held
	if hook == nil {
		return
	}
	for _, m := range waiting {
		hook(w.delivery(m))
	}
}

// begin calls Hooks.Transaction at the start of the transaction. It returns the function to call when the transaction has ended; nil if no hook needs
// the call.
func (u *unit) begin() func(error) {
	hook := u.w.p.cfg.Hooks.Transaction
	if hook == nil || len(u.toRun) == 0 {
		return u.end(nil)
	}
	ds := make([]Delivery, len(u.toRun))
	for i, m := range u.toRun {
		ds[i] = u.delivery(m)
	}
	var ended func(error)
	u.ctx, ended = hook(u.ctx, ds)
	return u.end(ended)
}

// end returns the function to call when the transaction has ended; nil if no hook needs the call. If one message runs alone, that function first
// calls the function that Hooks.Handler returned. Then it calls transaction, the function that Hooks.Transaction returned.
func (u *unit) end(transaction func(error)) func(error) {
	if transaction == nil && u.w.p.cfg.Hooks.Handler == nil {
		return nil
	}
	return func(err error) {
		if u.ended != nil {
			u.ended(u.ran(u.toRun[0], err))
		}
		if transaction != nil {
			transaction(err)
		}
	}
}

// startHandlerHook calls Hooks.Handler before m's handler. It returns the handler's context, and the function to call when the handler has returned.
func (u *unit) startHandlerHook(ctx context.Context, m *message) (context.Context, func(error)) {
	ctx, ended := u.w.p.cfg.Hooks.Handler(ctx, u.delivery(m))
	switch {
	case ended == nil:
		return ctx, func(error) {}
	case len(u.toRun) == 1:
		u.ended = ended
		return ctx, func(error) {}
	}
	return ctx, func(err error) { ended(u.ran(m, err)) }
}

// ran returns the delivery of m's run, which ended with err.
func (u *unit) ran(m *message, err error) Delivery {
	d := u.delivery(m)
	if d.Err = err; err != nil {
		d.Outcome = envelope.None
		if blames(err) {
			d.Class = classify(err)
		}
	}
	return d
}
