package participant

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// serialClass is the first half of the advisory lock that lets batches of a group run one at a time; see leaseClass.
const serialClass = 0x74727574 // "trut"

// serialFor is the time for which batches run one at a time after a deadlock among them.
const serialFor = time.Minute

// serial lets batches of a group run one at a time for a while, after a deadlock of two of them. A batch keeps its row locks until it ends. So if keys
// share rows (the stock of an article), batches of two partitions may lock these rows in different orders. Postgres looks for a deadlock only after a
// second, in which both wait, and the next batches wait for each other again: a hop that could handle thousands of messages a second handles a
// hundred. Batches that run one at a time cannot deadlock with each other. A message that runs alone does not wait.
//
// serial is on in a process for serialFor after a deadlock has rolled back one of its batches. The process's batches then wait for each other, and
// for the batches of other processes in which serial is on. If the host of a member is lost while its batch runs, the other members wait until the
// next owner of the partition ends that member's session, or until idle_in_transaction_session_timeout.
type serial struct {
	taken chan struct{} // holds one while a batch of this process runs
	until atomic.Int64  // Unix nanoseconds
}

func newSerial() *serial { return &serial{taken: make(chan struct{}, 1)} }

func (s *serial) on() bool { return time.Now().UnixNano() < s.until.Load() }

// wait waits, if serial is on, until no other batch of this process runs. The caller calls end when its own batch has ended.
func (s *serial) wait(ctx context.Context) (end func()) {
	if !s.on() {
		return func() {}
	}
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken }
	case <-ctx.Done():
		return func() {}
	}
}

// deadlocked switches serial on if err is a deadlock. It reports whether it has switched serial on: false if err is another error, or if serial was
// on before.
func (s *serial) deadlocked(err error) (switched bool) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "40P01" {
		return false
	}
	switched = !s.on()
	s.until.Store(time.Now().Add(serialFor).UnixNano())
	return switched
}

// queue adds the statement that makes the transaction wait for the batches of other processes.
func (s *serial) queue(b *pgx.Batch, group string) {
	b.Queue("SELECT pg_advisory_xact_lock($1, hashtext($2))", int32(serialClass), group)
}
