package participant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
)

const (
	// statementLimit bounds what this package waits for outside handlers: a connection, the inbox row, the commit.
	statementLimit = 30 * time.Second
	// rollbackLimit bounds what goes on after a context has ended.
	rollbackLimit = 5 * time.Second
	conflicts     = 5
)

// attempt runs m's handler in one transaction with its inbox row, its outcome and the end of its held row. A nil error
// says that it took effect, now or before. A lost race is run again a few times.
func (w *worker) attempt(m *message) error {
	if m.unreadable != nil {
		return classified{Poison, m.unreadable}
	}
	if m.handler == nil {
		return classified{Poison, fmt.Errorf("no handler for type %q on %s", m.Type, m.Topic)}
	}
	for lost := 0; ; lost++ {
		err := w.attemptOnce(m)
		var race conflict
		if err == nil || !errors.As(err, &race) {
			return err
		}
		if lost == conflicts {
			if race.ours {
				return unavailable{err}
			}
			return err
		}
	}
}

func (w *worker) attemptOnce(m *message) (err error) {
	d := w.delivery(m)
	began := time.Now()
	run, err := w.prepare(m)
	if err != nil {
		return err
	}
	commit, err := w.transact(m, func(tx pgx.Tx) error {
		tell(w.p.cfg.Hooks.BeforeHandler, d)
		outcome, err := w.handle(m, run, tx)
		d.Outcome = outcome.kind
		return err
	})
	if commit == nil {
		return err
	}
	tell(w.p.cfg.Hooks.BeforeCommit, d)
	if err := commit(); err != nil {
		return atCommit(err)
	}
	d.Took = time.Since(began)
	tell(w.p.cfg.Hooks.AfterCommit, d)
	return nil
}

// transact begins, deletes m's held row and inserts its inbox row. Of a message that has taken effect before, that
// is all, and it commits it; else it calls do and returns what commits the whole.
func (w *worker) transact(m *message, do func(pgx.Tx) error) (commit func() error, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
	defer cancel()
	tx, err := w.p.cfg.Pool.Begin(ctx)
	if err != nil {
		return nil, ours(err)
	}
	defer func() {
		if commit == nil {
			w.rollback(tx)
		}
	}()
	if m.held != nil {
		if still, err := w.p.release(ctx, tx, m); err != nil || !still {
			return nil, err
		}
	}
	first, err := w.p.claim(ctx, tx, m)
	if err != nil {
		return nil, err
	}
	if !first {
		if m.held != nil {
			return nil, ours(tx.Commit(ctx))
		}
		return nil, nil
	}
	if err := do(tx); err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
		defer cancel()
		defer w.rollback(tx)
		return tx.Commit(ctx)
	}, nil
}

// rollback gives the connection back, whatever became of the transaction.
func (w *worker) rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), rollbackLimit)
	defer cancel()
	_ = tx.Rollback(ctx) // after a commit it does nothing; on a connection that is gone there is nothing to do
}

// handle runs the handler within its time-out and writes its outcome.
func (w *worker) handle(m *message, run run, tx pgx.Tx) (Outcome, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.p.cfg.Timeout)
	defer cancel()
	ctx = envelope.WithCause(ctx, m.cause(w.p.cfg.Group))
	outcome, err := w.call(ctx, run, tx)
	if err == nil && m.handler.answers {
		err = w.p.answer(ctx, tx, m, outcome)
	}
	if w.ctx.Err() == nil && ctx.Err() != nil {
		if err == nil {
			err = ctx.Err()
		}
		return Outcome{}, classified{Timeout, fmt.Errorf("ran longer than %s: %w", w.p.cfg.Timeout, err)}
	}
	return outcome, theirs(err, tx)
}

// prepare reads the body; a codec may panic on bytes it did not expect.
func (w *worker) prepare(m *message) (_ run, err error) {
	defer recovered(&err)
	return m.handler.prepare(m.Message, m.attempts()+1)
}

// call is the handler's own time: while it runs, the worker's clock does.
func (w *worker) call(ctx context.Context, run run, tx pgx.Tx) (_ Outcome, err error) {
	w.running.Store(time.Now().UnixNano())
	defer w.running.Store(0)
	defer recovered(&err)
	return run(ctx, tx)
}

func recovered(err *error) {
	if value := recover(); value != nil {
		*err = panicked{value: value, stack: debug.Stack()}
	}
}

// answer writes the outcome event: the command's key, idempotency key and place in a saga are its own.
func (p *Participant) answer(ctx context.Context, tx pgx.Tx, m *message, o Outcome) error {
	if o.kind == envelope.None {
		return errNoOutcome
	}
	e := p.reply(m)
	e.Outcome, e.Body = o.kind, o.body
	if o.body == nil {
		return classified{Permanent, errors.New("outcome without a body")}
	}
	err := p.out.Write(ctx, tx, e)
	if err != nil && ctx.Err() == nil && tx.Conn().PgConn().TxStatus() == 'T' && !tx.Conn().IsClosed() {
		return classified{Permanent, err} // refused before it was sent: it cannot be encoded or is too large
	}
	return err
}

// reply is an entry for the hop's events topic that answers m.
func (p *Participant) reply(m *message) outbox.Entry {
	e := outbox.Entry{
		Topic: p.cfg.Hop.Events(), IdempotencyKey: m.IdempotencyKey,
		SagaID: m.SagaID, SagaStep: m.SagaStep, SagaOperation: m.SagaOperation,
	}
	if len(m.Key) > 0 && utf8.Valid(m.Key) && !bytes.Contains(m.Key, []byte{0}) {
		e.Key = string(m.Key)
	} else {
		e.KeyBytes = m.Key
	}
	return e
}

// delivery is what hooks are told of m.
func (w *worker) delivery(m *message) Delivery {
	return Delivery{
		Message: m.Message, Partition: m.partition, Offset: m.offset,
		Handler: m.handlerName(w.p.cfg.Group), Attempt: m.attempts() + 1,
	}
}
