package flow

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// Late describes an expected message that arrived after the expectation was raised.
type Late struct {
	Name    string
	Key     string
	Message envelope.Message // the expected message
}

// OnLate registers fn for the declared expectation of that name, which must list messages in Late. fn is called when an
// expected message arrives after Raise was written: once for each key, in the transaction in which the message is handled.
// Usually it returns participant.Succeed with the message declared in Late, so that it reaches services that have compensated.
//
// fn is not called for a message that arrives after its time and before Raise was written, as may happen after the broker was
// away: Raise is not written then. Call OnLate before the participant's Run, which returns its errors.
func OnLate(s *Service, name string, fn func(ctx context.Context, tx pgx.Tx, l Late) (participant.Outcome, error)) {
	e := s.expectations[name]
	switch {
	case e == nil || len(e.Late) == 0:
		s.mistaken(fmt.Errorf("expectation %q: OnLate is called, and no expectation of that name declares late messages: "+
			"add late to the declaration, or remove the call", name))
	case e.late != nil:
		s.mistaken(fmt.Errorf("expectation %q: OnLate is called twice", name))
	case fn == nil:
		s.mistaken(fmt.Errorf("expectation %q: OnLate is called without a function", name))
	default:
		e.late = fn
	}
}

// metOrLate records that m arrived, and calls OnLate's function if the expectation was raised before.
func (e *expectation) metOrLate(ctx context.Context, tx pgx.Tx, key string, m envelope.Message) error {
	k, err := e.known(tx.QueryRow(ctx, meetSQL, e.args(key)))
	if err != nil || !k.news || !k.raised {
		return err
	}
	e.cameLate(key, m)
	ctx = e.s.withStableIDs(ctx, "late", e.Name, key, []envelope.Message{m})
	outcome, err := e.s.diligent(ctx, fmt.Sprintf("expectation %q, late", e.Name), e.Late, nil,
		func(ctx context.Context) (participant.Outcome, error) {
			return e.late(ctx, tx, Late{Name: e.Name, Key: key, Message: m})
		})
	if err != nil {
		return err
	}
	return e.s.p.Extension().Answer(ctx, tx, outcome)
}

// cameLate logs an expected message that arrived after the expectation was raised.
func (e *expectation) cameLate(key string, m envelope.Message) {
	e.s.cfg.Log.Warn().Str("expectation", e.Name).Str("key", key).Str("event", name(partOf(m))).Str("raised", name(e.Raise)).
		Msg("an expected event came after its expectation was raised")
}
