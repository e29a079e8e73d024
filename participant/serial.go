package participant

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// turnClass is the first half of the advisory lock that lets batches of a group run one at a time; see leaseClass.
const turnClass = 0x74727574 // "trut"

// turnsFor is the time for which batches run one at a time after a deadlock among them.
const turnsFor = time.Minute

// turns lets batches of a group run one at a time for a while, after a deadlock of two of them. A batch keeps its row locks, so if keys share rows
// (the stock of an article), batches of two partitions lock these in different orders. Postgres looks for a deadlock only after a second, in which
// both wait, and the next batches wait for each other again: a hop that could handle thousands of messages a second handles a hundred. Batches that
// run one at a time cannot deadlock. A message that runs alone does not wait for its turn.
//
// Turns are on in a process for turnsFor after a deadlock has rolled back one of its batches. Its batches then wait for each other, and for the
// batches of other processes in which turns are on.
type turns struct {
	taken chan struct{} // holds one while a batch of this process has its turn
	until atomic.Int64  // Unix nanoseconds
}

func newTurns() *turns { return &turns{taken: make(chan struct{}, 1)} }

func (t *turns) on() bool { return time.Now().UnixNano() < t.until.Load() }

// wait waits for this process's turn, if turns are on. The caller calls end when the batch has ended.
func (t *turns) wait(ctx context.Context) (end func()) {
	if !t.on() {
		return func() {}
	}
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken }
	case <-ctx.Done():
		return func() {}
	}
}

// deadlocked switches turns on if err is a deadlock, and reports whether they were off before.
func (t *turns) deadlocked(err error) (news bool) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "40P01" {
		return false
	}
	news = !t.on()
	t.until.Store(time.Now().Add(turnsFor).UnixNano())
	return news
}

// queue adds the statement that makes the transaction wait for the batches of other processes.
func (t *turns) queue(b *pgx.Batch, group string) {
	b.Queue("SELECT pg_advisory_xact_lock($1, hashtext($2))", int32(turnClass), group)
}
