package participant

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// turnClass is the first half of the advisory lock that batches of a group take turns by; see leaseClass.
const turnClass = 0x74727574 // "trut"

// turnsFor is how long batches take turns after a deadlock among them.
const turnsFor = time.Minute

// turns keep the batches of a group apart for a while, in all its processes, once two of them waited for each other. A
// batch keeps its row locks, so where keys share rows (the stock of an article) batches of two partitions lock these
// in different orders. Postgres looks for a deadlock after a second only, in which both stand still, and next time they
// meet again: a hop that could do thousands a second does a hundred. Batches in turn cannot meet. A message that runs alone
// takes no turn.
type turns struct {
	taken chan struct{} // holds one while a batch of this process has its turn
	until atomic.Int64  // Unix nanoseconds
}

func newTurns() *turns { return &turns{taken: make(chan struct{}, 1)} }

func (t *turns) on() bool { return time.Now().UnixNano() < t.until.Load() }

// wait returns with this process's turn, where turns are taken. The caller calls end when the batch has ended.
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

// deadlocked makes batches take turns if err is a deadlock's, and says whether that is news.
func (t *turns) deadlocked(err error) (news bool) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "40P01" {
		return false
	}
	news = !t.on()
	t.until.Store(time.Now().Add(turnsFor).UnixNano())
	return news
}

// queue makes the transaction wait for those of other processes.
func (t *turns) queue(b *pgx.Batch, group string) {
	b.Queue("SELECT pg_advisory_xact_lock($1, hashtext($2))", int32(turnClass), group)
}
