package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/keyed"
	"github.com/troupe-go/troupe/internal/pg"
)

const (
	// submitBatch is the maximum number of sagas that a transaction of Submit starts. submitAtOnce is the number of such transactions
	// that may run at once.
	submitBatch  = 100
	submitAtOnce = 4
	// submitGather is the longest time for which a start waits for a running transaction to end, counted from the begin of the
	// transaction that began last.
	submitGather = 20 * time.Millisecond
)

// Submit starts a saga as Start does, in a transaction of the coordinator's own. It returns when that has committed. Sagas that are
// submitted while such a transaction runs share the next one: a service with many concurrent requests pays for one commit per batch,
// not per request. If nothing runs, a start goes alone and does not wait. While fewer than four transactions run, no start waits longer
// than 20 ms.
//
// own, unless nil, has statements for the service's own rows. They run in the same transaction if this call starts the saga. If a saga
// of that key exists, they do not run: a repeated request writes nothing, and the result reports that the saga existed.
//
// If a transaction of several sagas fails, unless the database is unavailable, each saga is tried again in a transaction of its own. So
// an error of one does not affect the others. The functions in own that read the statements' results run in another goroutine, and once
// more for each try. Use the results only after Submit has returned no error. The functions may still run after ctx has ended.
//
// A start may wait for a lock, such as the lock of a Start of the same key that has not committed. Then all starts of its transaction
// wait, each until its own ctx ends: keep transactions with Start short.
//
// The error wraps ErrConflict after three tries. If ctx ends, or the connection is lost, before the commit is confirmed, the saga may
// have started. Submit it again: that is safe, and returns the same id.
func (c *Coordinator) Submit(ctx context.Context, name string, fields map[string]any, own *pgx.Batch) (is StartResult, err error) {
	s := &submission{ctx: ctx, own: own, done: make(chan error, 1)}
	if s.start, err = c.definitions.StartOf(ctx, name, fields); err == nil {
		c.submissions.PushAside(maphash.String(submitSeed, s.start.ID()), s)
		select {
		case err = <-s.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return StartResult{}, fmt.Errorf("coordinator: submit: %w", err)
	}
	return s.is, nil
}

// submission is one call of Submit.
type submission struct {
	ctx   context.Context
	start decisions.Start
	is    StartResult // the result of the last try; read it after a receive from done
	own   *pgx.Batch
	done  chan error
}

// queue adds the submission's own statements to tx. It copies them, since they may be sent again on another connection.
func (s *submission) queue(tx *pipelinedTx) {
	if s.own == nil {
		return
	}
	for _, q := range s.own.QueuedQueries {
		tx.Batch.Queue(q.SQL, q.Arguments...).Fn = q.Fn
		tx.checked = tx.checked || q.Fn != nil
	}
}

var submitSeed = maphash.MakeSeed()

// takeSubmissions makes the lane that gathers calls of Submit into transactions.
func (c *Coordinator) takeSubmissions() {
	c.submissions = keyed.NewLane(keyed.NewPool(submitAtOnce), keyed.Config[*submission, struct{}]{
		Batch: submitBatch, Gather: submitGather, Run: func(all []*submission) (int, bool) {
			c.submit(all)
			return len(all), false
		},
	})
	c.submissions.Release()
}

// submit starts all in one transaction and sends each its result. If that transaction fails, and the database is available, submit
// starts each in a transaction of its own, since one of the submissions may be the cause of the error.
func (c *Coordinator) submit(all []*submission) {
	all = slices.DeleteFunc(all, func(s *submission) bool { return s.ctx.Err() != nil }) // their callers do not wait any more
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b *submission) int { return cmp.Compare(a.start.Lock(), b.start.Lock()) }) // two transactions take their locks in one order
	err := c.together(all)
	if err != nil && len(all) > 1 && pg.Classify(err) != pg.Unavailable {
		for _, s := range all {
			s.done <- c.together([]*submission{s})
		}
		return
	}
	for _, s := range all {
		s.done <- err
	}
}

// together starts all in one transaction, whose context ends when no caller waits any more. A single start is tried again after a
// conflict. After a conflict of several, submit tries each by itself.
func (c *Coordinator) together(all []*submission) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var waiting atomic.Int64
	waiting.Store(int64(len(all)))
	for _, s := range all {
		defer context.AfterFunc(s.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	for range decisions.StartTries {
		if err = c.startAll(ctx, all); !errors.Is(err, ErrConflict) || len(all) > 1 {
			break
		}
	}
	return err
}

// startAll tries once to start all in one transaction.
func (c *Coordinator) startAll(ctx context.Context, all []*submission) error {
	conn, err := c.cfg.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	tx := &pipelinedTx{conn: conn}
	defer tx.release()
	w := c.decider.Begin(tx)
	w.Callers = make(map[string]context.Context, len(all))
	if err = decideStarts(ctx, w, tx, all); err == nil {
		err = tx.commit(ctx)
	}
	if err = w.ReportConflict(err); err == nil {
		w.CallHooks()
	}
	return err
}

// decideStarts decides on the starts, and queues the callers' own statements, the messages and the deadlines.
func decideStarts(ctx context.Context, w *decisions.Work, tx *pipelinedTx, all []*submission) error {
	if err := w.Load(ctx, idsOf(all)); err != nil {
		return err
	}
	for _, s := range all {
		is, err := w.Start(ctx, s.start)
		if err != nil {
			return err
		}
		if s.is = StartResult(is); !s.is.Existed {
			w.Callers[s.is.ID] = s.ctx
			s.queue(tx)
		}
	}
	return w.End(ctx, nil)
}

func idsOf(all []*submission) []string {
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = s.start.ID()
	}
	return ids
}
