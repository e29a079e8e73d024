package participant

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/retry"
)

// worker goes through one assigned partition: what comes from the topic, and what is held and due.
type worker struct {
	c      *consumer
	p      *Participant
	at     topicPartition
	topic  string
	id     int32
	ctx    context.Context // of what runs; cancelled when it must not go on
	cancel context.CancelFunc
	stop   chan struct{} // closed: end after the message you are at
	done   chan struct{}
	backlog
	holds   holds
	running atomic.Int64 // since when a handler runs, in Unix nanoseconds; 0: none does
	waits   atomic.Pointer[waiting]
	died    atomic.Bool
}

// waiting is a worker's time without a database.
type waiting struct {
	since time.Time
	err   error
}

func newWorker(c *consumer, at topicPartition) *worker {
	w := &worker{
		c: c, p: c.p, at: at, topic: at.topic, id: at.partition,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.backlog.init(c.client, at)
	return w
}

// work goes on until stop. A turn is one held message that is due and one from the topic, so that neither starves the
// other.
func (w *worker) work() {
	defer close(w.done)
	defer w.cancel()
	defer w.checkEnd()
	if !w.insist(func() error { return w.load(w.ctx) }) {
		return
	}
	for !w.stopped() {
		key, due, held := w.holds.next()
		if held && !time.Now().Before(due) {
			if !w.insist(func() error { return w.retry(key) }) {
				return
			}
		}
		if r, topicID, ok := w.pop(); ok {
			m := fromRecord(r, topicID)
			m.handler = w.p.handlers[w.topic][m.Type]
			if !w.insist(func() error { return w.deliver(m) }) {
				return
			}
			w.c.offsets.mark(w.at, r, topicID)
			continue
		}
		w.rest()
	}
}

// checkEnd notices a handler that took the goroutine along by runtime.Goexit, as FailNow of a test does.
func (w *worker) checkEnd() {
	if !w.stopped() && w.ctx.Err() == nil {
		w.died.Store(true)
		w.p.cfg.Log.Error().Stringer("partition", w.at).Msg("a handler ended its goroutine: the partition is not consumed any more")
	}
}

// rest waits for a record, for the first held key, or for stop.
func (w *worker) rest() {
	var alarm <-chan time.Time
	if _, due, ok := w.holds.next(); ok {
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-w.pushed:
	case <-alarm:
	case <-w.stop:
	}
}

// deliver brings m to its end, or to troupe.held. An error says nothing about m.
func (w *worker) deliver(m *message) error {
	if m.unreadable == nil && m.handler == nil && m.Topic != w.p.cfg.Hop.Commands() {
		return nil // an event that nobody here handles
	}
	if w.holds.has(m) {
		return w.append(w.ctx, m)
	}
	return w.try(m)
}

// retry takes the first message of a held key, if it is due.
func (w *worker) retry(key holdKey) error {
	m, wait, err := w.head(w.ctx, key)
	switch {
	case err != nil:
		return err
	case m == nil:
		w.holds.free(key)
		return nil
	case wait > 0:
		w.holds.set(key, time.Now().Add(wait))
		return nil
	}
	return w.try(m)
}

// try runs m and decides what its error means.
func (w *worker) try(m *message) error {
	began := time.Now()
	err := w.attempt(m)
	var away unavailable
	if err == nil || errors.As(err, &away) {
		return err
	}
	f := failure{classify(err), err}
	if f.class == Permanent || f.class == Poison || w.p.cfg.Retry.Exhausted(m.attempts()+1) {
		return w.bury(m, f)
	}
	wait, err := w.hold(w.ctx, m, f)
	if err != nil {
		// The row may be there all the same: m must come by way of it, or it would be left behind.
		w.holds.set(m.holdKey(), time.Now())
		return err
	}
	w.holds.set(m.holdKey(), time.Now().Add(wait))
	d := w.delivery(m)
	d.Class, d.Err, d.Took = f.class, f.err, time.Since(began)
	w.p.failed(d)
	return nil
}

// insist runs step until it has an answer: the database may be away. It says no when the worker was stopped first.
func (w *worker) insist(step func() error) bool {
	policy := retry.Policy{Initial: 50 * time.Millisecond, Cap: 2 * time.Second}
	for failed := 1; ; failed++ {
		err := step()
		if err == nil {
			if w.waits.Swap(nil) != nil {
				w.p.database.report(nil)
			}
			return true
		}
		if w.ctx.Err() != nil {
			return false
		}
		w.p.database.report(err)
		w.waits.CompareAndSwap(nil, &waiting{since: time.Now(), err: err})
		timer := time.NewTimer(policy.Wait(failed))
		select {
		case <-w.stop:
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

func (w *worker) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}
