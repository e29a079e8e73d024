package participant

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
)

// The barrier of a saga's step decides whether a forward call or a compensation runs, in whatever order the two come. Each of the two has a row in
// troupe.answers, by saga, step and operation, which is written in the transaction of its effect. From the row of the other call a call knows the
// other's state. If both run at the same time, they insert the same unique key, and the second one runs again.
//
//	call          its stored answer           the other call's     effect
//	either        success                     -                    that answer again
//	either        failure, to this key        -                    that answer again
//	forward       none, or to another key     any                  its handler does not run; the answer is a failure, which is stored
//	forward       none, or to another key     none                 runs
//	compensation  none, or to another key     -                    runs. If the forward call has no success, a refusal of it is
//	                                                               stored too, so that it does nothing when it comes
//	 in doubt     none, or to another key     success              runs
//	 in doubt     none, or to another key     any, and the call    runs: it undoes the call's effects outside the database
//	                                          has a mark (begun.go)
//	 in doubt     none, or to another key     none, or a failure   its handler does not run; the answer is a success. A refusal of
//	                                                               the forward call is stored too, as above
//	either        none                        none, and it may be  dead letter (permanent): it is not known whether there
//	                                          forgotten            was a call, and an operator must settle the step
//
// "To this key" is an answer to a command with the same idempotency key.
//
// An answer may be forgotten (deleted) if its call was sent before the time in troupe.inbox_groups.barrier_forgotten, at which
// the youngest of the deleted answers was given. The present Config.BarrierRetention does not show this, since it may have had
// another value when answers were deleted. The time when a call was sent is in ce.HeaderSince; without this
// header the message's own time counts.
//
// A saga calls again under another key after an operator has removed the cause of a refusal.

// forHandler returns m as its handler gets it. Its IdempotencyKey is the key for services that the handler calls: the key of the first call of the
// step if its result is unknown, with an addition if an operator has edited the message.
func (m *message) forHandler() envelope.Message {
	c := m.Message
	if key := m.extra(ce.HeaderFirstKey); key != "" && m.ofSaga() {
		c.IdempotencyKey = key
	}
	c.IdempotencyKey = deadletter.RequestKey(c.IdempotencyKey, m.Extra)
	return c
}

// clockMargin is the largest difference assumed between the clocks of a saga's sender and of a participant.
const clockMargin = time.Hour

// Nothing is the body of the answer to a saga's command whose handler did not run, since there was nothing to do. It is JSON whatever codec the flow
// uses. A forward call that comes after its compensation is answered with it as a failure. A compensation in doubt whose forward call has not taken
// effect is answered with it as a success; the forward call then never takes effect.
type Nothing struct {
	Reason string `json:"reason"` // for operators
}

// MessageType returns the event's ce_type.
func (Nothing) MessageType() string { return "troupe.Nothing" }

// PlainJSON makes participants encode and decode the body as JSON.
func (Nothing) PlainJSON() {}

// The operations of a step.
const (
	forward    = "forward"
	compensate = "compensate"
)

// ofSaga reports whether m is a command that is identified by its saga, step and operation.
func (m *message) ofSaga() bool {
	return !m.handler.reacts && m.SagaOperation != "" && m.SagaID != "" && m.SagaStep != "" &&
		(m.SagaOperation == forward || m.SagaOperation == compensate)
}

// stepKey returns the key of the answer to an operation of m's step.
func (m *message) stepKey(operation string) answerKey {
	return answerKey{indexable(operation + " " + m.SagaStep), indexable(m.SagaID)}
}

func (m *message) otherOperation() string {
	if m.SagaOperation == forward {
		return compensate
	}
	return forward
}

func (m *message) inDoubt() bool { return m.extra(ce.HeaderDoubt) == "true" }

func (m *message) extra(name string) string {
	for _, h := range m.Extra {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// forgotten reports whether an answer to m's step, which is not stored, may have been deleted.
func (u *unit) forgotten(m *message) bool {
	since, err := time.Parse(time.RFC3339, m.extra(ce.HeaderSince))
	if err != nil {
		since = m.Time
	}
	return u.deleted != nil && !since.IsZero() && since.Before(u.deleted.Add(clockMargin))
}

// verdict is the decision of judge on a command.
type verdict int

const (
	runs    verdict = iota // its handler runs
	repeats                // its stored answer is sent again
	nothing                // it is answered with Nothing
	refuses                // it becomes a dead letter
)

// judge decides on m by the stored answers, as the table above shows. stored is the answer to repeat; reason is for the answer Nothing.
func (u *unit) judge(m *message) (v verdict, stored storedAnswer, reason string) {
	stored, known := u.answers[m.answerKey()]
	switch {
	case known && !m.ofSaga():
		return repeats, stored, ""
	case !m.ofSaga():
		return runs, stored, ""
	case known && (stored.outcome == envelope.Success || stored.commandKey == indexable(m.IdempotencyKey)):
		return repeats, stored, ""
	}
	other, there := u.answers[m.stepKey(m.otherOperation())]
	doubt := m.SagaOperation == compensate && m.inDoubt()
	if doubt && u.mayHaveBegun(m) {
		return runs, stored, ""
	}
	if !there && (doubt || !known) && u.forgotten(m) {
		return refuses, stored, ""
	}
	switch {
	case m.SagaOperation == forward && there:
		return nothing, stored, compensatedBefore
	case m.SagaOperation == forward, !doubt, other.outcome == envelope.Success:
		return runs, stored, ""
	case there:
		return nothing, stored, "the forward call was refused"
	}
	return nothing, stored, "there was no forward call, and there will be none"
}

// errForgotten refuses a command whose step may have been answered so long ago that the answer is deleted.
var errForgotten = classified{Permanent, errors.New("this step may have been answered, and the answer deleted after the " +
	"BarrierRetention: look what the service has, and resolve the step by hand")}

// doNothing answers m with Nothing instead of running its handler. For a compensation it also stores that the forward call does nothing from now on.
func (u *unit) doNothing(ctx context.Context, m *message, reason string) error {
	e := u.w.p.reply(m)
	e.Outcome = envelope.Failure
	if m.SagaOperation == compensate {
		e.Outcome = envelope.Success
	}
	encoded, err := encodeNothing(reason)
	if err != nil {
		return err
	}
	e.Payload, e.Type, e.ContentType = encoded.Payload, encoded.Type, encoded.ContentType
	if err := u.w.p.out.Render(ctx, &u.tx.events, e); err != nil {
		return classified{Permanent, err}
	}
	u.storeAnswer(m, e)
	if m.SagaOperation == compensate {
		u.forbid(m, encoded)
		u.bar(m)
	}
	m.outcome, m.nothingReason = e.Outcome, reason
	return nil
}

func encodeNothing(reason string) (envelope.Encoded, error) {
	return envelope.JSONCodec{}.Encode("", Nothing{Reason: reason})
}

const compensatedBefore = "the step was compensated before"

// precede keeps the forward call of m's step from taking effect after m, if m is a compensation that ran and that call has no success yet. If the
// call runs at the same time, it has not seen the rows that precede stores: its own insertion conflicts with them, and it runs again.
func (u *unit) precede(m *message) error {
	if !m.ofSaga() || m.SagaOperation != compensate || u.answers[m.stepKey(forward)].outcome == envelope.Success {
		return nil
	}
	encoded, err := encodeNothing(compensatedBefore)
	if err != nil {
		return err
	}
	u.forbid(m, encoded)
	if _, marked := u.answers[m.stepKey(begun)]; !marked {
		u.bar(m)
	}
	return nil
}

// forbid stores a failure as the answer to the forward call of m's step, so that this call does nothing from now on. A failure that is stored already
// is stored again unchanged: a retry of the call that runs at the same time must conflict with it.
func (u *unit) forbid(m *message, e envelope.Encoded) {
	k := m.stepKey(forward)
	s, refused := u.answers[k]
	if !refused {
		s = storedAnswer{outcome: envelope.Failure, typ: e.Type, contentType: e.ContentType, payload: e.Payload}
	}
	u.store(m, k, s)
}

// didNothing logs a command that was answered with Nothing, after its transaction has committed.
func (p *Participant) didNothing(m *message) {
	p.cfg.Log.Info().Str("place", m.place()).Str("message_id", m.id).Str("saga", readable(m.SagaID, 200)).
		Str("step", readable(m.SagaStep, 200)).Str("operation", m.SagaOperation).Msg("nothing done: " + m.nothingReason)
}
