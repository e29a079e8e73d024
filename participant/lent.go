package participant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/troupe-go/troupe/retry"
)

var (
	errReturned = fmt.Errorf("the handler has returned, and its transaction is no longer its own: wait for goroutines that use it: %w", pgx.ErrTxClosed)
	errOwnEnd   = errors.New("a handler's SQL began or ended a transaction: the participant commits when the handler returns an outcome, and " +
		"rolls back when it returns an error; use tx.Begin for a savepoint")
	errEnded = errors.New("the handler ended its transaction on tx.Conn(): the inbox row and earlier writes may be committed, " +
		"the outcome is not; leave COMMIT and ROLLBACK to the participant")
	errInUse   = errors.New("the handler returned while a goroutine of its own used its transaction: wait for it")
	errOpen    = errors.New("the handler left rows or batch results open: close them before it returns")
	errClosed  = errors.New("the handler's connection is closed though the handler returned no error: was it lost, or did a statement's own context end?")
	errAborted = errors.New("a statement of the handler failed, which aborted the transaction, and the handler returned no error")
	errSets    = errors.New("the handler changes settings of its transaction: its messages run alone")
	errGoexit  = errors.New("the handler ended its goroutine (runtime.Goexit, as testing.T.FailNow does) instead of returning")
)

// loan is the use of a transaction by one handler, until the handler returns.
type loan struct {
	of   *handlerTx
	conn *pgx.Conn

	mu      sync.Mutex
	over    bool
	calls   int           // number of calls that have not returned
	idle    chan struct{} // closed when no call is left, once the loan is over
	does    effect
	mistake error // fails the run, whatever its handler returns
}

// start begins a call that sends statements; done ends it. It returns an error if the loan is over, or if a statement begins or ends a transaction.
// Such a statement also makes the run fail.
func (l *loan) start(statements ...string) error {
	var does effect
	for _, sql := range statements {
		does |= effectsOf(sql)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return errReturned
	}
	if does&endsTransaction != 0 {
		l.mistake = errOwnEnd
		return errOwnEnd
	}
	l.does |= does
	l.calls++
	return nil
}

func (l *loan) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls--; l.calls == 0 && l.idle != nil {
		close(l.idle)
	}
}

// end ends the loan: each later use of the transaction is an error. If a call still runs, end closes the connection, and the run fails. does holds
// the effects of the handler's statements.
func (l *loan) end() (does effect, mistake error) {
	l.mu.Lock()
	l.over = true
	does, mistake = l.does, l.mistake
	if l.calls > 0 {
		l.idle = make(chan struct{})
	}
	l.mu.Unlock()
	if l.idle == nil {
		return does, mistake
	}
	_ = l.conn.PgConn().Conn().Close() // the only method of pgx that may be called during another call
	select {
	case <-l.idle:
	case <-time.After(rollbackLimit):
	}
	return does, errors.Join(mistake, errInUse)
}

// lent is a transaction, or a savepoint in one, in the form in which a handler gets it.
type lent struct {
	tx pgx.Tx
	*loan
}

// lentTx is the transaction itself, which can queue.
type lentTx struct{ lent }

// lend lends the transaction to a handler.
func (t *handlerTx) lend() *lentTx { return &lentTx{lent{t, &loan{of: t, conn: t.conn.Conn()}}} }

// QueueBatch queues a batch whose results are read only by its own functions, as outbox.Write needs it.
func (l *lentTx) QueueBatch(b *pgx.Batch) error {
	if err := l.startBatch(b); err != nil {
		return err
	}
	defer l.done()
	return l.of.QueueBatch(b)
}

func (l *loan) startBatch(b *pgx.Batch) error {
	statements := make([]string, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		statements[i] = q.SQL
	}
	return l.start(statements...)
}

// afterCommit stores fn, unless the handler has returned.
func (l *lentTx) afterCommit(fn func()) bool {
	if l.start() != nil {
		return false
	}
	defer l.done()
	l.of.after = append(l.of.after, fn)
	return true
}

func (l *lent) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := l.start(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer l.done()
	return l.tx.Exec(ctx, sql, args...)
}

func (l *lent) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := l.start(sql); err != nil {
		return failedRows{err}, err
	}
	defer l.done()
	return l.tx.Query(ctx, sql, args...)
}

func (l *lent) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := l.start(sql); err != nil {
		return failedRow{err}
	}
	defer l.done()
	return l.tx.QueryRow(ctx, sql, args...)
}

func (l *lent) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := l.startBatch(b); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer l.done()
	return l.tx.SendBatch(ctx, b)
}

func (l *lent) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := l.start(); err != nil {
		return 0, err
	}
	defer l.done()
	return l.tx.CopyFrom(ctx, table, columns, rows)
}

func (l *lent) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := l.start(sql); err != nil {
		return nil, err
	}
	defer l.done()
	return l.tx.Prepare(ctx, name, sql)
}

// LargeObjects returns pgx's object for large objects. Its use is not watched: so the message runs alone, and its connection is closed afterwards.
func (l *lent) LargeObjects() pgx.LargeObjects {
	if l.start() == nil {
		l.mu.Lock()
		l.does |= sets | setsSession
		l.mu.Unlock()
		l.done()
	}
	return l.tx.LargeObjects()
}

// Conn returns the connection itself: for its types and configuration, not for statements.
func (l *lent) Conn() *pgx.Conn { return l.conn }

// Begin sets a savepoint.
func (l *lent) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := l.start(); err != nil {
		return nil, err
	}
	defer l.done()
	tx, err := l.tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &lent{tx, l.loan}, nil
}

// Commit releases a savepoint; on the transaction itself it returns an error.
func (l *lent) Commit(ctx context.Context) error {
	if err := l.start(); err != nil {
		return err
	}
	defer l.done()
	return l.tx.Commit(ctx)
}

// Rollback rolls back to a savepoint; on the transaction itself it returns an error.
func (l *lent) Rollback(ctx context.Context) error {
	if err := l.start(); err != nil {
		return err
	}
	defer l.done()
	return l.tx.Rollback(ctx)
}

// failedRows are the rows of a query that was not sent.
type failedRows struct{ err error }

func (r failedRows) Close()                                       {}
func (r failedRows) Err() error                                   { return r.err }
func (r failedRows) CommandTag() (none pgconn.CommandTag)         { return none }
func (r failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r failedRows) Next() bool                                   { return false }
func (r failedRows) Scan(...any) error                            { return r.err }
func (r failedRows) Values() ([]any, error)                       { return nil, r.err }
func (r failedRows) RawValues() [][]byte                          { return nil }
func (r failedRows) Conn() *pgx.Conn                              { return nil }
func (r failedRows) TypeMap() *pgtype.Map                         { return nil }

// takeBack ends a handler's loan. It returns the error of the run, which depends on the handler's own error and the state of the connection. The
// order of the cases matters: a statement that only noticed the end of the connection or of the transaction is not its cause.
func (u *unit) takeBack(m *message, l *lentTx, err error) error {
	does, mistake := l.end()
	if does&sets != 0 {
		u.setter = m
	}
	if does&setsSession != 0 {
		u.tx.spoiled = true
	}
	conn := l.conn.PgConn()
	switch {
	case errors.Is(mistake, errOwnEnd):
		return classified{Permanent, mistake}
	case mistake != nil:
		return mistake
	case conn.IsClosed():
		return lost(err)
	case conn.IsBusy() && err == nil:
		return errOpen
	case conn.IsBusy():
		return err // its own error says more; the connection is closed with the transaction
	case conn.TxStatus() == 'I':
		err = errors.Join(errEnded, err)
		for _, m := range u.toRun {
			m.txEnded = err
		}
		return classified{Permanent, err}
	case conn.TxStatus() == 'E' && err == nil:
		return errAborted
	}
	return handlerError(err)
}

// lost classifies err, the error that a handler returned although its connection is closed. It returns a conflict, after which runAlone repeats the
// run immediately on another connection; this is so also if err is nil. It returns err unchanged in three cases: the handler's own time-out or
// cancellation, after which pgx closes the connection; a permanent error; and an error that is not about the message.
func lost(err error) error {
	ownClock := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case err == nil:
		return conflict{error: errClosed, cut: true}
	case ownClock || retry.IsPermanent(err) || !blames(err):
		return err
	}
	return conflict{error: err, cut: true}
}
