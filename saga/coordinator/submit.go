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

	"github.com/troupe-go/troupe/internal/keyed"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/saga"
)

const (
	// submitBatch is how many sagas a transaction of Submit starts at most, and submitAtOnce how many of those run at once.
	submitBatch  = 100
	submitAtOnce = 4
	// submitGather is how long a start waits for a transaction that runs to end, from the beginning of that.
	submitGather = 20 * time.Millisecond
)

// Submit starts a saga as Start does, in a transaction of the coordinator's own, and returns when that has committed. Sagas
// that others submit while one runs share the next: who serves many requests at once pays for a commit now and then, not
// for each. Nobody waits for company: where nothing runs a start goes by itself, and while fewer than four transactions run none
// waits longer than 20 ms.
//
// own, unless nil, are statements for the service's own rows. They go in the same transaction where this call starts the
// saga, and are left out where there is one of that key: a request that comes again writes nothing, and the result says that
// it existed. A transaction that fails
// is tried again for each saga by itself, so what one of them is refused costs the others nothing. The functions that read
// their results run in another goroutine, once more for each try; what they find holds when Submit gives no error, and where ctx
// has ended they may still run.
//
// One that waits for a lock, such as for a Start of its key that has not committed, lets those wait that share its transaction,
// each until its own ctx ends: keep such transactions short.
//
// An error wraps ErrConflict after three tries. Where ctx ends, or the connection is lost, before the commit is heard of, the
// saga may have started: to submit it again is safe, and gives the same id.
func (c *Coordinator) Submit(ctx context.Context, name string, fields map[string]any, own *pgx.Batch) (is StartResult, err error) {
	s := &submission{ctx: ctx, own: own, done: make(chan error, 1)}
	if err = c.definitions.submitted(s, name, fields); err == nil {
		c.submissions.PushAside(maphash.String(submitSeed, s.target.id), s)
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

// submission is a call of Submit.
type submission struct {
	ctx    context.Context
	target target
	is     StartResult // of the last try, to be read when done has said that it was the one
	own    *pgx.Batch
	done   chan error
}

// queue adds the statements of its own to tx, and keeps them as they are for another try, on another connection.
func (s *submission) queue(tx *swift) {
	if s.own == nil {
		return
	}
	for _, q := range s.own.QueuedQueries {
		tx.batch.Queue(q.SQL, q.Arguments...).Fn = q.Fn
		tx.asks = tx.asks || q.Fn != nil
	}
}

var submitSeed = maphash.MakeSeed()

func (c *Coordinator) takeSubmissions() {
	c.submissions = keyed.NewLane(keyed.NewPool(submitAtOnce), keyed.Config[*submission, struct{}]{
		Batch: submitBatch, Gather: submitGather, Run: func(all []*submission) (int, bool) {
			c.submit(all)
			return len(all), false
		},
	})
	c.submissions.Release()
}

// submitted lets s be what name and fields begin.
func (ds *definitions) submitted(s *submission, name string, fields map[string]any) error {
	d, err := ds.named(name)
	if err != nil {
		return err
	}
	if s.target, err = started(d, saga.Event{Fields: fields, Correlation: correlationOf(s.ctx)}); err != nil {
		return err
	}
	return nil
}

// submit gives each its answer: of all together, or, where that failed by what may be the doing of one of them, of each by
// itself.
func (c *Coordinator) submit(all []*submission) {
	all = slices.DeleteFunc(all, func(s *submission) bool { return s.ctx.Err() != nil }) // they have gone
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b *submission) int { return cmp.Compare(a.target.lock, b.target.lock) }) // all take locks in one order
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

// together starts them in one transaction, for as long as one of them waits for it.
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
	for range startTries {
		if err = c.startAll(ctx, all); !errors.Is(err, ErrConflict) || len(all) > 1 {
			break
		}
	}
	return err
}

func (c *Coordinator) startAll(ctx context.Context, all []*submission) error {
	conn, err := c.cfg.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	tx := &swift{conn: conn}
	defer tx.end()
	w := c.begin(tx)
	w.callers = make(map[string]context.Context, len(all))
	if err = w.startAll(ctx, tx, all); err == nil {
		err = tx.commit(ctx)
	}
	if err = w.lost(err); err == nil {
		w.told()
	}
	return err
}

// startAll decides on the starts, and queues what follows.
func (w *work) startAll(ctx context.Context, tx *swift, all []*submission) error {
	if err := w.pass.load(ctx, idsOf(all)); err != nil {
		return err
	}
	for _, s := range all {
		id := s.target.id
		s.is = w.pass.found(s.target)
		if err := w.pass.start(ctx, s.target); err != nil {
			return err
		}
		if !s.is.Existed {
			w.callers[id] = s.ctx
			s.queue(tx)
		}
	}
	return w.end(ctx, nil)
}

func idsOf(all []*submission) []string {
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = s.target.id
	}
	return ids
}
