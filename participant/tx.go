package participant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/outbox"
)

// Queue adds a statement to a handler's transaction without waiting for its result. The statement goes to the server with the handler's next
// statement or with the commit, together with the statements that other messages of the batch have queued, in one round trip. Queued statements keep
// their order. Use Queue for a statement whose result the handler does not need. A later statement must not depend on it for its parsing, as on a
// CREATE TABLE.
//
// The statement's error comes later, as the error of the run, and is classified like any other. On a transaction that cannot queue (it has no
// QueueBatch) the statement is executed at once, so that a test can call a handler.
func Queue(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	if q, ok := tx.(interface{ QueueBatch(*pgx.Batch) error }); ok {
		var b pgx.Batch
		b.Queue(sql, args...)
		return q.QueueBatch(&b)
	}
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

// AfterCommit registers fn to be called when a handler's transaction has committed, and reports whether it will be: false for a savepoint, for a
// transaction that is not a participant's, and after the handler has returned. fn runs before the message counts as handled and must not block. fn is
// never called if the commit got no answer, even if the transaction has committed, or if the process ends before. Work that must not be lost belongs
// in the transaction. A panic in fn ends the process. With local work the fn of the next message of the key may be called first, since another worker
// can run that message as soon as this transaction has committed.
func AfterCommit(tx pgx.Tx, fn func()) bool {
	l, ok := tx.(*lentTx)
	return ok && l.afterCommit(fn)
}

var (
	errOurCommit = errors.New("a handler's transaction is committed by the participant: return an outcome instead")
	errOurEnd    = errors.New("a handler's transaction is rolled back by the participant: return an error instead")
)

// handlerTx is the transaction that handlers work in, each through a lentTx of its own. Queued statements are sent with the next statement that is
// executed, or with COMMIT.
type handlerTx struct {
	pgx.Tx // for methods that are not overridden
	conn   *pgxpool.Conn
	queue  pgx.Batch
	out    *outbox.Outbox
	after  []func() // called when it has committed
	// unsent is the error of queued statements that did not reach the server, such as one with an argument that cannot be encoded. The
	// server's transaction goes on without them, so it must not be committed, also if the handler that got the error has ignored it.
	unsent error
	// spoiled is true if the session has settings of a handler, so that the connection must not be used again.
	spoiled bool
	// events, stored and answers are the answers so far. They are sent with COMMIT: sent one by one, each would make the next handler's statements
	// slower. If a statement must come after them, keepOrder queues them earlier.
	events  outbox.Rows
	stored  pgx.Batch
	answers answerRows // queued after stored
	// queued and answered are the approximate bytes of queue, and of all answers of the transaction, which later messages of a batch may repeat.
	queued, answered int
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.queue.Len() > 0 && !hasOption(args) {
		t.queue.Queue(sql, args...)
		return t.flush(ctx)
	}
	if _, err := t.flush(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

// flush sends the queued statements, and returns the tag of the last one.
func (t *handlerTx) flush(ctx context.Context) (last pgconn.CommandTag, err error) {
	if t.queue.Len() == 0 {
		return last, nil
	}
	results, queries := t.send(ctx)
	for _, q := range queries {
		if last, err = ran(q, results); err != nil {
			break
		}
	}
	err = errors.Join(err, ignore(results.Close(), err))
	t.noteUnsent(err)
	return last, err
}

// noteUnsent stores err in unsent if err is of queued statements and the server's transaction is still open after it.
func (t *handlerTx) noteUnsent(err error) {
	if raw := t.conn.Conn().PgConn(); err != nil && t.unsent == nil && !raw.IsClosed() && raw.TxStatus() == 'T' {
		t.unsent = err
	}
}

// send sends the queued statements and empties the queue.
func (t *handlerTx) send(ctx context.Context) (pgx.BatchResults, []*pgx.QueuedQuery) {
	queued := t.queue
	t.queue, t.queued = pgx.Batch{}, 0
	return t.conn.SendBatch(ctx, &queued), queued.QueuedQueries
}

func ran(q *pgx.QueuedQuery, results pgx.BatchResults) (tag pgconn.CommandTag, err error) {
	if q.Fn != nil {
		return tag, q.Fn(results)
	}
	return results.Exec()
}

// ignore returns err, or nil if known is set: then both errors have the same cause.
func ignore(err, known error) error {
	if known != nil {
		return nil
	}
	return err
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.queue.Len() == 0 {
		return t.Tx.Query(ctx, sql, args...)
	}
	if hasOption(args) {
		if _, err := t.flush(ctx); err != nil {
			return nil, err
		}
		return t.Tx.Query(ctx, sql, args...)
	}
	results, err := t.behind(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, ignore(results.Close(), err))
	}
	return &lastRows{Rows: rows, results: results}, nil
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.queue.Len() == 0 {
		return t.Tx.QueryRow(ctx, sql, args...)
	}
	if hasOption(args) {
		if _, err := t.flush(ctx); err != nil {
			return failedRow{err}
		}
		return t.Tx.QueryRow(ctx, sql, args...)
	}
	results, err := t.behind(ctx, sql, args)
	if err != nil {
		return failedRow{err}
	}
	return lastRow{results}
}

// behind sends a query after the queued statements, in one round trip, and reads the results of the queued statements. The caller reads the result of
// the query.
func (t *handlerTx) behind(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	t.queue.Queue(sql, args...)
	results, queries := t.send(ctx)
	for _, q := range queries[:len(queries)-1] {
		if _, err := ran(q, results); err != nil {
			err = errors.Join(err, ignore(results.Close(), err))
			t.noteUnsent(err)
			return nil, err
		}
	}
	return results, nil
}

// hasOption reports whether the first argument sets how pgx runs the query, which a batch cannot do.
func hasOption(args []any) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return true
	}
	return false
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// lastRow is the row of the last query of a batch; Scan closes the batch.
type lastRow struct{ results pgx.BatchResults }

func (r lastRow) Scan(dest ...any) error {
	err := r.results.QueryRow().Scan(dest...)
	closed := r.results.Close()
	if err == nil || errors.Is(err, pgx.ErrNoRows) && closed != nil {
		return closed
	}
	return err
}

// lastRows are the rows of the last query of a batch; Close closes the batch.
type lastRows struct {
	pgx.Rows
	results pgx.BatchResults
	closed  error
}

func (r *lastRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *lastRows) Close() {
	r.Rows.Close()
	r.closed = r.results.Close()
}

func (r *lastRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.closed
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if _, err := t.flush(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.Tx.SendBatch(ctx, b)
}

// QueueBatch queues a batch whose results are read only by its own functions, as outbox.Write needs it.
func (t *handlerTx) QueueBatch(b *pgx.Batch) error {
	add(&t.queue, b) // not after the answers so far: a rollback to a savepoint of this handler must not discard them
	for _, q := range b.QueuedQueries {
		for _, arg := range q.Arguments {
			t.queued += sizeOf(arg)
		}
	}
	return nil
}

// sizeOf returns the number of bytes of the texts in an argument of a statement.
func sizeOf(arg any) (n int) {
	switch arg := arg.(type) {
	case string:
		n = len(arg)
	case *string:
		if arg != nil {
			n = len(*arg)
		}
	case json.RawMessage:
		n = len(arg)
	case []byte:
		n = len(arg)
	case []string:
		for _, text := range arg {
			n += len(text)
		}
	case [][]byte:
		for _, bytes := range arg {
			n += len(bytes)
		}
	case pg.Args:
		for _, named := range arg {
			n += sizeOf(named)
		}
	case pgx.NamedArgs:
		for _, named := range arg {
			n += sizeOf(named)
		}
	}
	return n
}

func add(to, b *pgx.Batch) { to.QueuedQueries = append(to.QueuedQueries, b.QueuedQueries...) }

// keepOrder queues the answers so far, so that all statements that are queued later come after the answers.
func (t *handlerTx) keepOrder() {
	t.out.Queue(&t.queue, &t.events)
	t.answers.queue(&t.stored)
	add(&t.queue, &t.stored)
	t.stored = pgx.Batch{}
}

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if _, err := t.flush(ctx); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

// Commit returns an error: the participant commits.
func (t *handlerTx) Commit(context.Context) error { return errOurCommit }

// Rollback returns an error: the participant rolls back.
func (t *handlerTx) Rollback(context.Context) error { return errOurEnd }

// Begin sets a savepoint.
func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if _, err := t.flush(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Begin(ctx)
}

// inUTF8 is executed if the database is in UTF-8 and the role's client_encoding is another one. pgx sends Go's strings, which are UTF-8, unchanged.
// Postgres would convert them, and an answer would have another key than its command.
const inUTF8 = "SELECT set_config('client_encoding', 'UTF8', true)"

// begin begins a transaction. BEGIN and the statements of first are sent in one round trip; then read reads the results of these statements.
func (w *runner) begin(ctx context.Context, first func(*pgx.Batch), read func(pgx.BatchResults) error) (*handlerTx, error) {
	conn, err := w.p.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, database(err)
	}
	t := &handlerTx{conn: conn, out: w.p.out}
	w.p.learnEncoding(conn.Conn())
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	statements := 1
	if status := conn.Conn().PgConn().ParameterStatus; status("server_encoding") == "UTF8" && status("client_encoding") != "UTF8" {
		batch.Queue(inUTF8)
		statements++
	}
	first(&batch)
	results := conn.SendBatch(ctx, &batch)
	t.Tx = results.Tx()
	for ; statements > 0 && err == nil; statements-- {
		_, err = results.Exec()
	}
	if err == nil {
		err = read(results)
	}
	err = errors.Join(err, ignore(results.Close(), err))
	if err != nil {
		t.rollback(w.ctx)
		return nil, err
	}
	return t, nil
}

// commit sends the queued statements and COMMIT after them.
func (t *handlerTx) commit(ctx context.Context) error {
	if t.unsent != nil {
		return t.unsent
	}
	t.keepOrder()
	t.queue.Queue("commit")
	tag, err := t.flush(ctx)
	if err == nil && tag.String() == "ROLLBACK" {
		err = fmt.Errorf("%w: a statement failed before", pgx.ErrTxCommitRollback)
	}
	return err
}

// rollback rolls back the transaction if it is open and releases the connection. It may be called again.
func (t *handlerTx) rollback(ctx context.Context) {
	if t.conn == nil {
		return
	}
	if raw := t.conn.Conn(); !raw.IsClosed() && raw.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
		defer cancel()
		_, _ = raw.Exec(ctx, "rollback") // on a connection that is gone there is nothing to do
	}
	if t.spoiled {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
		defer cancel()
		_ = t.conn.Hijack().Close(ctx)
	} else {
		t.conn.Release()
	}
	t.conn = nil
}

// rollbackLimit limits the work that goes on after a context has ended.
const rollbackLimit = 5 * time.Second
