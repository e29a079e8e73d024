package flow

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/participant"
)

var (
	//go:embed sql/expect.sql
	expectSQL string
	//go:embed sql/meet.sql
	meetSQL string
	//go:embed sql/raise.sql
	raiseSQL string
	//go:embed sql/forget_expectations.sql
	forgetExpectationsSQL string
)

// expectationDeadline is the prefix of the deadline's name; the expectation's name follows.
const expectationDeadline = "expect."

// Missed is an expectation that was not met in time.
type Missed struct {
	Name string
	Key  string
	// After is the message that it began with.
	After envelope.Message
}

// OnMissed registers fn for the declared expectation of that name. fn is called when none of the expected messages has arrived in
// time, once for each key. Usually it returns participant.Refuse with the declared Raise, so that other services compensate.
//
// An expected message that arrives later is logged, and changes nothing unless OnLate is registered. Call OnMissed before the
// participant's Run, which returns its errors.
func OnMissed(s *Service, name string, fn func(ctx context.Context, tx pgx.Tx, m Missed) (participant.Outcome, error)) {
	e := s.expectations[name]
	if e == nil {
		s.mistaken(fmt.Errorf("expectation %q: a handler is registered and no such expectation is declared: add it to the declaration, or take the handler out", name))
		return
	}
	if e.missed != nil {
		s.mistaken(fmt.Errorf("expectation %q: two handlers", name))
		return
	}
	e.missed = fn
	if e.After.Topic == s.p.Hop().Events() {
		s.p.Extension().ObserveSelf(extension.SelfObserver{Type: e.After.Type, Name: expectationDeadline + name, OnWrite: e.beginsWith, OnConsume: e.beginsAgain})
	} else {
		s.p.Extension().Observe(e.After.Topic, e.After.Type, e.begins)
	}
	for _, m := range e.Expect {
		s.p.Extension().Observe(m.Topic, m.Type, e.met)
	}
	participant.OnDeadline(s.p, expectationDeadline+name, e.raise)
	s.p.Extension().FireAfterBacklog(expectationDeadline + name)
}

// An expectation is a declared expectation with its handler.
type expectation struct {
	Expectation
	s      *Service
	within time.Duration
	missed func(ctx context.Context, tx pgx.Tx, m Missed) (participant.Outcome, error)
	late   func(ctx context.Context, tx pgx.Tx, l Late) (participant.Outcome, error) // nil: a late message is only logged
}

func newExpectation(s *Service, declared Expectation) (*expectation, error) {
	e := &expectation{Expectation: declared, s: s}
	if !partName.MatchString(e.Name) {
		return nil, errors.New("want a name of 1 to 80 letters, digits, dots, dashes and underscores")
	}
	if len(e.Expect) == 0 || len(e.Expect) > maxAwaited {
		return nil, fmt.Errorf("expects %d messages: want 1 to %d", len(e.Expect), maxAwaited)
	}
	if err := readable(slices.Concat(e.Expect, e.Late, []Message{e.After, e.Raise})...); err != nil {
		return nil, err
	}
	for i, m := range e.Expect {
		if same(m, e.After) || has(e.Expect[:i], m) {
			return nil, fmt.Errorf("expects %s after itself, or twice", name(m))
		}
	}
	var err error
	e.within, err = within(e.Within)
	return e, err
}

// known is the result of a statement on an expectation's row: whether it changed the row, and whether the expectation has been
// met or raised.
type known struct {
	news, met, raised bool
}

func (e *expectation) known(row pgx.Row) (k known, err error) {
	if err = row.Scan(&k.news, &k.met, &k.raised); err != nil {
		err = fmt.Errorf("expectation %q: %w", e.Name, err)
	}
	return k, err
}

func (e *expectation) args(key string) pg.Args {
	return pg.Args{"group": e.s.p.Group(), "name": e.Name, "key": key, "retention": e.s.cfg.Retention.Seconds()}
}

// begins schedules the deadline, unless the expected message has arrived before.
func (e *expectation) begins(ctx context.Context, tx pgx.Tx, m envelope.Message) error {
	args, err := e.beginning(m)
	if err != nil {
		return err
	}
	k, err := e.known(tx.QueryRow(ctx, expectSQL, args))
	if err != nil || !k.news || k.met {
		return err
	}
	b := &pgx.Batch{}
	e.s.forget(b)
	ds := e.s.p.Extension().Deadlines()
	if err := ds.Schedule(ctx, e.deadline()); err != nil {
		return err
	}
	ds.Queue(b)
	return queue(ctx, tx, b)
}

// beginsAgain is begins for an event of the hop's own, which is consumed although the expectation may have begun when it was written. It does nothing
// if the row of that expectation may be deleted, as for a dead letter that is redriven late: the expected message has come, and would be missed.
func (e *expectation) beginsAgain(ctx context.Context, tx pgx.Tx, m envelope.Message) error {
	began := slices.ContainsFunc(m.Extra, func(h envelope.Header) bool {
		return h.Key == ce.HeaderObserved && string(h.Value) == e.s.p.Group()+"/"+expectationDeadline+e.Name
	})
	if began && time.Since(m.Time) > e.s.cfg.Retention {
		e.s.cfg.Log.Warn().Str("expectation", e.Name).Str("key", string(m.Key)).Time("written", m.Time).
			Msg("an expectation does not begin again: it began when its event was written, longer ago than rows of expectations are kept")
		return nil
	}
	return e.begins(ctx, tx, m)
}

// beginsWith schedules the deadline in the transaction that writes m. The expected message cannot follow from m before that, so
// the statement's result is not awaited. If the message has arrived for another reason, the deadline finds this and does nothing.
func (e *expectation) beginsWith(ctx context.Context, b *pgx.Batch, m envelope.Message) error {
	args, err := e.beginning(m)
	if err != nil {
		return err
	}
	b.Queue(expectSQL, args)
	e.s.forget(b)
	d := e.deadline()
	d.Keep = true
	ds := e.s.p.Extension().Deadlines()
	err = ds.Schedule(ctx, d)
	ds.Queue(b)
	return err
}

func (e *expectation) beginning(m envelope.Message) (pg.Args, error) {
	key, err := keyOf(m)
	if err != nil {
		return nil, fmt.Errorf("expectation %q: %w", e.Name, err)
	}
	args := e.args(key)
	args["headers"], args["payload"] = envelope.MarshalHeaders(m.Headers()), m.Payload
	args["within"], args["alert_id"] = e.within.Seconds(), alertID(e.s.p.Group(), e.Name, key, m)
	return args, nil
}

func (e *expectation) deadline() extension.Deadline {
	return extension.Deadline{Name: expectationDeadline + e.Name, After: e.within, Body: bodyOf(e.Expect)}
}

// met cancels the deadline, or logs that the message is late. It waits for no result: its statements are sent with the handler's
// own.
func (e *expectation) met(ctx context.Context, tx pgx.Tx, m envelope.Message) error {
	key, err := keyOf(m)
	if err != nil {
		return fmt.Errorf("expectation %q: %w", e.Name, err)
	}
	b := &pgx.Batch{}
	if e.late != nil {
		if err := e.metOrLate(ctx, tx, key, m); err != nil {
			return err
		}
		b.Queue(forgetExpectationsSQL)
		return errors.Join(queue(ctx, tx, b), e.s.p.Cancel(ctx, tx, expectationDeadline+e.Name, ""))
	}
	b.Queue(meetSQL, e.args(key)).QueryRow(func(row pgx.Row) error {
		k, err := e.known(row)
		if err == nil && k.news && k.raised {
			e.cameLate(key, m)
		}
		return err
	})
	e.s.forget(b) // here too, since this row may belong to an expectation that never begins
	if err := queue(ctx, tx, b); err != nil {
		return err
	}
	return e.s.p.Cancel(ctx, tx, expectationDeadline+e.Name, "")
}

// forgetEvery is the number of expectations that begin or are met between two deletions of rows whose retention has passed.
const forgetEvery = 8

func (s *Service) forget(b *pgx.Batch) {
	if s.moves.Add(1)%forgetEvery == 1 {
		b.Queue(forgetExpectationsSQL)
	}
}

// queue sends statements together with tx's next one, if tx can do that.
func queue(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if q, ok := tx.(interface{ QueueBatch(*pgx.Batch) error }); ok {
		return q.QueueBatch(b)
	}
	return tx.SendBatch(ctx, b).Close()
}

// raise raises the expectation, unless it was met while its deadline was on the way.
func (e *expectation) raise(ctx context.Context, tx pgx.Tx, d participant.Due[deadlineBody]) error {
	key, err := keyOf(d.Message)
	if err != nil {
		return fmt.Errorf("expectation %q: %w", e.Name, err)
	}
	var headers, payload []byte
	err = tx.QueryRow(ctx, raiseSQL, e.args(key)).Scan(&headers, &payload)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("expectation %q: %w", e.Name, err)
	}
	after, err := restored(headers, payload)
	if err != nil {
		return fmt.Errorf("expectation %q: %w", e.Name, err)
	}
	after.Topic = e.After.Topic
	after.Key = d.Message.Key
	e.s.cfg.Log.Info().Str("expectation", e.Name).Str("key", key).Str("raises", name(e.Raise)).Msg("an expected event did not come in time")
	ctx = e.s.withStableIDs(ctx, "expectation", e.Name, key, []envelope.Message{after})
	outcome, err := e.s.diligent(ctx, fmt.Sprintf("expectation %q", e.Name), []Message{e.Raise}, nil,
		func(ctx context.Context) (participant.Outcome, error) {
			return e.missed(ctx, tx, Missed{Name: e.Name, Key: key, After: after})
		})
	if err != nil {
		return err
	}
	return e.s.p.Extension().Answer(ctx, tx, outcome)
}
