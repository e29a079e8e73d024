package participant

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-go/troupe/envelope"
)

// The barrier of a saga's step. Its forward call and its compensation each have a row in troupe.answers, by saga, step
// and operation, written in the transaction of their effect. By the two rows a call knows what the other has done; where
// both run at once they meet at the unique key, and the one that comes second runs again.
//
//	call          own answer                  the other's          what becomes of it
//	either        success                     -                    that answer again
//	either        failure, to this key        -                    that answer again
//	forward       none, or to another key     any                  nothing: refused, and stored so
//	forward       none, or to another key     none                 runs
//	compensation  none, or to another key     -                    runs; where the other has no success, it is forbidden
//	                                                               by a row of its own
//	 in doubt     none, or to another key     success              runs
//	 in doubt     none, or to another key     any, but begun since runs: what it did outside the database is undone
//	 in doubt     none, or to another key     none, or a failure   nothing: succeeds; both are stored, so that the
//	                                                               forward call does nothing either
//	either        none                        none, and it may be  refused as permanent: whether it is truth that there
//	                                          forgotten            was no call cannot be known, and a person settles it
//
// An answer may be forgotten where the call was sent before the youngest answer that was deleted, which
// troupe.inbox_groups.barrier_forgotten holds, was given: what Config.BarrierRetention is now does not say what was deleted
// while it was another. HeaderSince says when the call was sent, else the message's own time.
//
// Another key is how somebody asks again for what was refused, after he has removed the cause.

// HeaderDoubt says, with the value "true", that the sender of a compensation does not know whether the forward call took
// effect, for instance since its answer did not come in time. Without it the compensation runs even where nothing is
// known of a forward call.
const HeaderDoubt = "__troupe.saga.doubt"

// HeaderSince says when the first call was sent of which the sender of a saga's command does not know what became, in
// RFC 3339: of a compensation in doubt the forward call, of a command that is sent again the first of them. It is not needed
// where that is the message's own time.
const HeaderSince = "__troupe.saga.since"

// clockMargin is how far the clocks of a saga's sender and of a participant may differ.
const clockMargin = time.Hour

// Nothing is the body of the answer to a saga's command that had nothing to do, so that its handler did not run. It is
// JSON whatever codec the flow uses. A forward call that comes after its compensation fails with it; a compensation in
// doubt whose forward call has not taken effect succeeds with it, and then that call never will.
type Nothing struct {
	Reason string `json:"reason"` // for people
}

// MessageType is the event's ce_type.
func (Nothing) MessageType() string { return "troupe.Nothing" }

// PlainJSON makes it JSON.
func (Nothing) PlainJSON() {}

// The operations of a step.
const (
	forward    = "forward"
	compensate = "compensate"
)

// ofSaga says whether m is known by its place in a saga.
func (m *message) ofSaga() bool {
	return !m.handler.reacts && m.SagaOperation != "" && m.SagaID != "" && m.SagaStep != "" &&
		(m.SagaOperation == forward || m.SagaOperation == compensate)
}

// stepKey is what the answer to an operation of m's step is found by.
func (m *message) stepKey(operation string) answerKey {
	return answerKey{indexable(operation + " " + m.SagaStep), indexable(m.SagaID)}
}

func (m *message) otherOperation() string {
	if m.SagaOperation == forward {
		return compensate
	}
	return forward
}

func (m *message) inDoubt() bool { return m.extra(HeaderDoubt) == "true" }

func (m *message) extra(name string) string {
	for _, h := range m.Extra {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// forgotten returns whether an answer to m's step that is not stored may have been deleted.
func (u *unit) forgotten(m *message) bool {
	since, err := time.Parse(time.RFC3339, m.extra(HeaderSince))
	if err != nil {
		since = m.Time
	}
	return u.deleted != nil && !since.IsZero() && since.Before(u.deleted.Add(clockMargin))
}

// verdict is what becomes of a command.
type verdict int

const (
	runs verdict = iota
	repeats
	nothing
	refuses
)

// judge says what becomes of m by what was answered before.
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
	if doubt && u.answers[m.stepKey(begun)].outcome == begun {
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

// errForgotten refuses a command that may have been answered so long ago that the answer is deleted.
var errForgotten = classified{Permanent, errors.New("this step may have been answered, and the answer deleted after the " +
	"BarrierRetention: look what the service has, and resolve the step by hand")}

// doNothing answers m without its handler.
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
	m.outcome, m.idle = e.Outcome, reason
	return nil
}

func encodeNothing(reason string) (envelope.Encoded, error) {
	return envelope.JSONCodec{}.Encode("", Nothing{Reason: reason})
}

const compensatedBefore = "the step was compensated before"

// precede keeps m's forward call from taking effect after m, where m is a compensation that ran and that call has no
// success yet. A call that runs at the same time has not seen m: it meets the row that forbids it, and runs again.
func (u *unit) precede(m *message) error {
	if !m.ofSaga() || m.SagaOperation != compensate || u.answers[m.stepKey(forward)].outcome == envelope.Success {
		return nil
	}
	encoded, err := encodeNothing(compensatedBefore)
	if err != nil {
		return err
	}
	u.forbid(m, encoded)
	return nil
}

// forbid makes m's forward call do nothing from now on. A refusal is stored anew as it is: who tries that call again at
// this moment must run into it.
func (u *unit) forbid(m *message, e envelope.Encoded) {
	k := m.stepKey(forward)
	s, refused := u.answers[k]
	if !refused {
		s = storedAnswer{outcome: envelope.Failure, typ: e.Type, contentType: e.ContentType, payload: e.Payload}
	}
	u.store(m, k, s)
}

// didNothing says so, once it is settled.
func (p *Participant) didNothing(m *message) {
	p.cfg.Log.Info().Str("message", m.place()).Str("message_id", m.id).Str("saga", readable(m.SagaID, 200)).
		Str("step", readable(m.SagaStep, 200)).Str("operation", m.SagaOperation).Msg("nothing done: " + m.idle)
}
