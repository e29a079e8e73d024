package participant

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// runner runs the messages of one source. Runs, transactions and failures are the same for all sources. It may be used concurrently.
type runner struct {
	p      *Participant
	from   source
	at     topicPartition  // for operators; for local work the hop's commands and partition -1
	ctx    context.Context // of the runs; cancelled when they must not continue
	cancel context.CancelFunc
	stop   chan struct{} // closed: begin nothing more

	clocks clocks
	gate   gate
	cuts   cuts
	died   atomic.Bool // a handler ended its goroutine

	unknown unknownTypes
}

// source is the origin of a runner's messages: a partition of a topic, or troupe.local_work. It also stores the results of their runs.
type source interface {
	// queueEnd queues the first statements of a transaction in which messages end or become dead letters; f is the failure of a dead letter. read
	// reads the results of these statements, and returns the messages that this member still owns.
	queueEnd(b *pgx.Batch, ms []*message, f *failure) (read func(pgx.BatchResults) ([]*message, error))
	// committed is called with the messages of such a transaction once it has committed.
	committed(ms []*message)
	// record stores a failed run of m. From then on m and the later messages of its key wait.
	record(m *message, f failure) error
	// pause keeps messages from beginning until resume, except one for each call of tryOne.
	pause()
	resume()
	tryOne()
	// fenced is called when another member owns the partition, so that this runner must not run its messages any more.
	fenced()
}

func newRunner(p *Participant, from source, at topicPartition) *runner {
	w := &runner{p: p, from: from, at: at, stop: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *runner) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// counts reports whether err, the error of a run, is about the run's message. It returns false once w's runs are cancelled.
func (w *runner) counts(err error) bool {
	return err != nil && !isAway(err) && !errors.Is(err, errFenced) && !errors.Is(err, errNoPermit) && w.ctx.Err() == nil
}

// settle ends m as a dead letter, or stores its failure and lets it wait for its next try. If settle returns an error, that error is not about m, and
// m must be tried again.
func (w *runner) settle(m *message, f failure) error {
	if m.lacksHandler() && m.txEnded == nil {
		f = w.unhandled(m, f)
	}
	if w.p.limitedTooLong(m, f) || !f.uncounted && (f.final() || w.p.policy(m).Exhausted(m.attempts()+1)) {
		if err := w.bury(m, f); !errors.Is(err, errRowsLocked) {
			return err
		} // another session has locked its rows: m waits, and is tried again
	}
	if err := w.from.record(m, f); err != nil {
		return err
	}
	switch {
	case !f.uncounted:
		w.failed(m, f)
	case f.class == RateLimited:
		w.reportLimited(m, f)
	case m.lacksHandler():
		w.p.recordUnhandled(m)
	}
	if m.held == nil {
		d := w.delivery(m)
		d.Class, d.Err = f.class, f.err
		tell(w.p.cfg.Hooks.Held, d)
	}
	return nil
}

// failed logs a run that counts as an attempt, and calls Hooks.Failed, once the failure is recorded. If the process ends in between, the attempt
// counts, and there is neither a log line nor a call of the hook.
func (w *runner) failed(m *message, f failure) {
	w.cuts.forget(m)
	d := w.delivery(m)
	d.Class, d.Err, d.Took = f.class, f.err, time.Since(m.began)
	w.p.failed(d)
}

// cuts counts, for each message, how many runs in a row have lost their connection. An outage does not reset the count, since a statement that makes
// the server fail must count in the end. The count is kept until the failure is recorded: the server may be down until then. cuts may be used
// concurrently.
type cuts struct {
	mu sync.Mutex
	of map[offsetKey]cut
}

type cut struct {
	n    int
	last error
}

func (c *cuts) add(m *message, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[offsetKey]cut)
	}
	c.of[m.offsetKey()] = cut{c.of[m.offsetKey()].n + 1, err}
}

// last returns the error of m's latest run once more than maxReruns runs of m in a row have lost their connection. The caller then counts that error
// as a failed attempt. Before that, last returns nil.
func (c *cuts) last(m *message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.of[m.offsetKey()]; known.n > maxReruns {
		return known.last
	}
	return nil
}

// forget drops the count of m. It is called when m has taken effect or its failure is recorded.
func (c *cuts) forget(m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, m.offsetKey())
}
