package participant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
)

const (
	// statementLimit limits each wait of this package outside handlers: for a connection, for the statements that begin a run, for the commit.
	statementLimit = 30 * time.Second
	// maxReruns is the largest number of times in a row that a run is repeated immediately, without a wait and without a counted attempt, because
	// another transaction won a race or the connection was lost.
	maxReruns = 5
)

// unit is one transaction in which messages run, or become dead letters.
type unit struct {
	w       *runner
	ctx     context.Context // of the handlers
	tx      *handlerTx
	all     []*message
	toRun   []*message // the messages of all that are new to the inbox: they run now
	answers answers
	deleted *time.Time     // when the youngest deleted answer to a saga's command was given; nil: none is deleted
	ended   func(Delivery) // the function that Hooks.Handler returned for a message that runs alone
	setter  *message       // the message whose handler has changed settings of the transaction

	answersAtCommit map[string]bool // keys of messages whose answers are sent with COMMIT
	overtook        bool            // the running handler wrote an event for a key in answersAtCommit
}

// unitKey is the context key under which a handler's context holds its unit.
type unitKey struct{}

// errOvertook rolls back a batch in which a handler wrote an event for the key of a message that was handled before it: in the outbox this event
// would precede the answer to that message. It counts no attempt of any message.
var errOvertook = errors.New("it writes an event for the key of another message of the batch")

// runAlone runs m's handler in a transaction of its own. After a lost race or a lost connection it repeats the run immediately, at most maxReruns
// times. It returns nil if m has taken effect, in this run or before, or if another member has m now.
func (w *runner) runAlone(m *message) error {
	if m.unreadable != nil {
		return classified{Poison, m.unreadable}
	}
	if m.handler == nil {
		return classified{Poison, m.unhandled()}
	}
	for lost := 0; ; lost++ {
		if err := w.cuts.last(m); err != nil {
			m.began = time.Now()
			return err
		}
		err := w.attempt(m)
		var race conflict
		if !errors.As(err, &race) {
			if err == nil {
				w.cuts.forget(m)
			}
			return err
		}
		if race.cut {
			w.cuts.add(m, err)
		}
		if lost == maxReruns {
			if race.own {
				return database(err)
			}
			return err
		}
	}
}

// failedIn is an error with the message in whose run it occurred. The cause may be another message of the transaction, whose statements were queued
// and sent in that run.
type failedIn struct {
	m *message
	error
}

func (f failedIn) Unwrap() error { return f.error }

// attempt runs the handlers of ms in one transaction. The transaction also inserts their inbox rows, writes their outcomes, and deletes their rows in
// troupe.held. After an error nothing has taken effect, unless COMMIT got no answer: then the next run learns from the inbox whether it has.
func (w *runner) attempt(ms ...*message) (err error) {
	began := time.Now()
	if slices.ContainsFunc(ms, endedItsTx) { // they become dead letters first; other messages may have joined the batch since
		others := slices.DeleteFunc(slices.Clone(ms), endedItsTx)
		if err := w.buryAfterOwnEnd(slices.DeleteFunc(slices.Clone(ms), func(m *message) bool { return !endedItsTx(m) })); err != nil || len(others) == 0 {
			return err
		}
		return w.attempt(others...)
	}
	if err := w.callFirst(ms); err != nil {
		return err
	}
	if err := w.announce(ms); err != nil {
		return err
	}
	defer w.withdraw(ms)
	u, err := w.beginUnit(ms, nil)
	if err != nil {
		return err
	}
	defer u.tx.rollback(w.ctx)
	w.logUnused(ms, u.toRun)
	// All batches lock keys in one order: two batches of different partitions that lock a row for each of their keys cannot
	// deadlock.
	slices.SortStableFunc(u.toRun, func(a, b *message) int { return bytes.Compare(a.Key, b.Key) })
	for _, m := range u.toRun {
		m.began = began
	}
	if end := u.begin(); end != nil {
		defer func() { end(err) }()
	}
	if err := u.run(); err != nil {
		if u.toRun[0].txEnded != nil {
			u.tx.rollback(w.ctx)
			return w.buryAfterOwnEnd(u.toRun)
		}
		return err
	}
	for _, m := range u.toRun {
		if hook := w.p.cfg.Hooks.BeforeCommit; hook != nil {
			hook(u.delivery(m))
		}
	}
	if err := u.commit(); err != nil {
		return err
	}
	for _, fn := range u.tx.after {
		fn()
	}
	for _, m := range u.toRun {
		m.result = nil // m stays in memory as long as the other records of its fetch
		if m.deadline != nil && m.deadline.refused {
			w.p.ignored(m, u.delivery(m))
		}
		if m.nothingReason != "" {
			w.p.didNothing(m)
		}
		if hook := w.p.cfg.Hooks.AfterCommit; hook != nil {
			hook(u.delivery(m))
		}
	}
	return nil
}

// beginUnit begins the transaction of ms. It sends BEGIN, the source's own statements, the inbox rows and the queries for stored answers in one round
// trip. The result's first holds the messages that the inbox did not know. If other members have all of ms, first is empty and the transaction is
// rolled back already. f is the failure of a message that becomes a dead letter; nil for a run.
func (w *runner) beginUnit(ms []*message, f *failure) (*unit, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.p.statementTimeout)
	defer cancel()
	u := &unit{w: w, ctx: w.ctx, all: ms}
	mine := ms
	var readEnd func(pgx.BatchResults) ([]*message, error)
	var claimed *claim
	var twins, locks, asked, sagas bool
	serially := len(ms) > 1 && w.p.serial.on()
	generation := ms[0].generation()
	first := func(b *pgx.Batch) {
		if generation > 0 {
			b.Queue(withhold, w.p.cfg.Group, generation)
		}
		if serially {
			w.p.serial.queue(b, w.p.cfg.Group)
		}
		readEnd = w.from.queueEnd(b, ms, f)
		claimed = w.p.claim(b, ms)
		twins = w.p.findEffective(b, ms)
		if f == nil {
			locks = w.p.lockBegun(b, ms)
		}
		if asked = w.p.findAnswers(b, ms); asked {
			sagas = w.p.findForgotten(b, ms)
		}
	}
	tx, err := w.begin(ctx, first, func(results pgx.BatchResults) (err error) {
		if generation > 0 {
			if _, err := results.Exec(); err != nil {
				return err
			}
		}
		if serially {
			if _, err := results.Exec(); err != nil {
				return err
			}
		}
		if mine, err = readEnd(results); err != nil {
			return err
		}
		known, err := claimed.read(results)
		if err == nil && twins {
			err = w.p.dropTwins(results, known)
		}
		if err != nil {
			return err
		}
		for _, m := range ms {
			m.passed = reasonDuplicate
			if known[m.identity()] || m.txEnded != nil {
				m.passed = ""
				delete(known, m.identity()) // a second delivery of it in this batch is a duplicate
				u.toRun = append(u.toRun, m)
			}
		}
		if locks {
			_, err = results.Exec()
			err = underWay(err)
		}
		if asked && err == nil {
			u.answers, err = readAnswers(results, len(ms))
		}
		if sagas && err == nil {
			u.deleted, err = readForgotten(results)
		}
		return err
	})
	if errors.Is(err, errFenced) || errors.Is(err, errUnderWay) {
		return nil, err
	}
	if errors.Is(err, errLargeAnswers) {
		return nil, conflict{error: err}
	}
	if err != nil {
		return nil, w.p.ownError(err)
	}
	u.tx = tx
	if len(mine) < len(ms) { // another member has the other messages: their identities must not stay in the inbox
		u.toRun = nil
		for _, m := range ms {
			m.passed = ""
		}
		tx.rollback(w.ctx)
		if len(mine) > 0 {
			return w.beginUnit(mine, f)
		}
		return u, nil
	}
	if err := u.admitFired(ctx); err != nil {
		tx.rollback(w.ctx)
		return nil, w.p.ownError(err)
	}
	return u, nil
}

// commit sends the queued statements and COMMIT. It does nothing if the transaction was rolled back already.
func (u *unit) commit() error {
	if u.tx.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(u.w.ctx, u.w.p.statementTimeout)
	defer cancel()
	err := u.tx.commit(ctx)
	if err == nil {
		u.w.from.committed(u.all)
	}
	return atCommit(err, u.tx.conn.Conn().IsClosed())
}

// failed classifies the error of a statement that this package sends between the handlers' statements. The cause may be an earlier statement of a
// handler, which was queued and sent with it.
func (u *unit) failed(err error) error { return atCommit(err, u.tx.conn.Conn().IsClosed()) }

// handle runs m's handler within its time-out and queues the outcome event. Two kinds of command do not reach the handler: one whose answer is stored
// gets that answer again, and one that the barrier of its saga's step stops (barrier.go) is answered with Nothing or refused. A message of a deadline
// does not reach the handler if meet refuses it.
func (u *unit) handle(m *message) (err error) {
	w := u.w
	m.nothingReason = ""
	limit := w.p.timeout(m)
	ctx, cancel := context.WithTimeout(u.ctx, limit)
	defer cancel()
	ctx = envelope.WithCause(ctx, m.cause(w.p.cfg.Group))
	if len(u.answersAtCommit) > 0 {
		ctx = context.WithValue(ctx, unitKey{}, u)
	}
	if m.answered() {
		switch v, stored, reason := u.judge(m); v {
		case repeats:
			if err := m.differs(stored); err != nil {
				return err
			}
			m.outcome = stored.outcome
			return w.p.repeatAnswer(ctx, u.tx, m, stored)
		case nothing:
			return u.doNothing(ctx, m, reason)
		case refuses:
			return errForgotten
		case runs:
			if u.lacksCallMark(m) {
				return errCallMarkGone
			}
		}
	}
	if w.p.cfg.Hooks.Handler != nil {
		var end func(error)
		ctx, end = u.startHandlerHook(ctx, m)
		defer func() { end(err) }()
	}
	if m.deadline != nil {
		if is, err := u.meet(ctx, m); err != nil || !is {
			return err
		}
	}
	run, err := w.prepare(m)
	if err != nil {
		return err
	}
	if m.handler.ask == nil {
		if err := m.spend(); err != nil {
			return err
		}
	}
	if hook := w.p.cfg.Hooks.BeforeHandler; hook != nil {
		hook(u.delivery(m))
	}
	tx := u.tx.lend()
	m.called = true
	outcome, handlerErr := w.call(ctx, m, run, tx)
	err = u.takeBack(m, tx, handlerErr)
	if err == nil && m.handler.answers {
		err = u.answer(ctx, m, outcome)
		handlerErr = err
	}
	m.outcome = outcome.kind
	if w.ctx.Err() == nil && ctx.Err() != nil && m.txEnded == nil {
		return tooLong(ctx, limit, handlerErr)
	}
	return err
}

// tooLong returns the error of a run that exceeded its time-out. err is the error that the handler returned, or nil.
func tooLong(ctx context.Context, limit time.Duration, err error) error {
	if err == nil {
		err = ctx.Err()
	}
	return classified{Timeout, fmt.Errorf("ran longer than %s: %w", limit, err)}
}

// prepare decodes m's body. A panic of the codec becomes an error.
func (w *runner) prepare(m *message) (_ run, err error) {
	defer recovered(&err)
	return m.handler.prepare(m)
}

// call runs the handler and records in w.clocks that it runs. The handler has a goroutine of its own, so that runtime.Goexit in it ends nothing else.
func (w *runner) call(ctx context.Context, m *message, run run, tx pgx.Tx) (o Outcome, err error) {
	w.clocks.start(m)
	defer w.clocks.stop(m)
	returned := make(chan struct{})
	err = panicked{value: errGoexit}
	go func() {
		defer close(returned)
		defer recovered(&err)
		o, err = run(ctx, tx)
		readText(err)
	}()
	<-returned
	return o, err
}

// readText calls err.Error, which panics if err is, for example, a nil pointer that a handler returned as an error. It is called where a panic makes
// a run fail.
func readText(err error) {
	if err != nil {
		_ = err.Error()
	}
}

func recovered(err *error) {
	if value := recover(); value != nil {
		*err = panicked{value: value, stack: debug.Stack()}
	}
}

// delivery returns the Delivery of m for hooks.
func (u *unit) delivery(m *message) Delivery {
	d := u.w.delivery(m)
	d.Outcome, d.Took = m.outcome, time.Since(m.began)
	d.Batch = len(u.toRun)
	return d
}

func (w *runner) delivery(m *message) Delivery {
	return Delivery{
		Message: m.Message, Partition: m.partition, Offset: m.offset,
		Handler: m.handlerName(w.p.cfg.Group), Attempt: m.attempts() + 1, Batch: 1, Held: m.held != nil,
	}
}
