package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/decisions"
)

// pipelinedTx is a transaction of Submit. It sends BEGIN with its first batch and COMMIT with its last, so a start takes two round trips,
// not four. The first call must be SendBatch, since BEGIN is sent with it.
type pipelinedTx struct {
	decisions.Queued
	conn    *pgxpool.Conn
	checked bool // functions of callers read results of the queued statements, and may return an error: COMMIT is sent after they have run
}

// SendBatch sends b, with BEGIN before the first batch.
func (t *pipelinedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.Tx != nil {
		return t.Tx.SendBatch(ctx, b)
	}
	all := &pgx.Batch{}
	all.BeginTx(decisions.Committed)
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	results := t.conn.SendBatch(ctx, all)
	t.Tx = results.Tx()
	if _, err := results.Exec(); err != nil {
		return pgx.FailedBatchResults(b, errors.Join(err, results.Close()))
	}
	return results
}

// commit sends the queued statements, and then COMMIT.
func (t *pipelinedTx) commit(ctx context.Context) error {
	if t.checked {
		if err := t.Flush(ctx); err != nil {
			return err
		}
		t.Batch = pgx.Batch{}
	}
	t.Batch.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() == "ROLLBACK" {
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	return t.Flush(ctx)
}

// rollbackLimit is the longest time for the rollback in release. release does not use the caller's context, since that may have ended.
const rollbackLimit = 5 * time.Second

// release rolls back, unless the transaction has committed, and releases the connection.
func (t *pipelinedTx) release() {
	defer t.conn.Release()
	if raw := t.conn.Conn(); !raw.IsClosed() && raw.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackLimit)
		defer cancel()
		_, _ = raw.Exec(ctx, "rollback") // an error closes the connection, and the server then rolls back
	}
}
