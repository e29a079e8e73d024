package participant

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/retry"
)

// unavailable is an error that reports a dependency as away. Such an error is not about the message.
type unavailable struct {
	what string // the dependency
	error
}

func (u unavailable) Unwrap() error { return u.error }

// awayOf returns the dependency that err reports as away, by retry.Unavailable.
func awayOf(err error) (unavailable, bool) {
	what, yes := retry.IsUnavailable(err)
	return unavailable{what, err}, yes
}

// isAway reports whether err reports a dependency as away.
func isAway(err error) bool {
	_, yes := retry.IsUnavailable(err)
	return yes
}

const theDatabase = "the database"

func database(err error) error { return retry.Unavailable(theDatabase, err) }

// gate stops a runner while a dependency is away, as a circuit breaker does. While the gate is shut (a circuit breaker calls this state open), no
// message begins, except one from time to time, to find out whether the dependency is back. Messages that could not run return to their places in the
// order.
type gate struct {
	waits atomic.Pointer[waiting]

	mu     sync.Mutex
	failed int
	next   *time.Timer // to the next try; nil while one runs
}

// waiting describes the wait for a dependency that is away.
type waiting struct {
	since time.Time
	unavailable
}

var probing = retry.Policy{Initial: 50 * time.Millisecond, Cap: 2 * time.Second}

// runStep runs step and reports whether it succeeded. If a dependency is away, runStep shuts the gate. After errFenced it gives the partition up. Without
// success the messages of step are tried again, unless another member owns them now.
func (w *runner) runStep(step func() error) bool {
	err := step()
	dependency, isAway := awayOf(err)
	switch {
	case err == nil:
		w.open()
		return true
	case errors.Is(err, errFenced):
		w.from.fenced()
	case isAway && w.ctx.Err() == nil:
		w.shut(dependency)
	case w.ctx.Err() == nil:
		if waits := w.gate.waits.Load(); waits != nil { // err does not show whether the dependency is back: try again later
			w.shut(waits.unavailable)
		}
	}
	return false
}

func (w *runner) shut(dependency unavailable) {
	w.p.outage(dependency.what).report(dependency)
	g := &w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next != nil {
		return // a step that began before has failed: the next try is planned already
	}
	w.waitFor(dependency)
	w.from.pause()
	g.failed++
	g.next = time.AfterFunc(probing.Wait(g.failed), func() {
		g.mu.Lock()
		g.next = nil
		g.mu.Unlock()
		w.from.tryOne()
	})
}

func (w *runner) open() {
	g := &w.gate
	if g.waits.Load() == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next != nil {
		return // a step that began before the gate was shut, and did not need the dependency
	}
	waited := w.waitNoMore()
	if waited == nil {
		return
	}
	g.failed = 0
	w.p.outage(waited.what).report(nil)
	w.from.resume()
}

// continueTries begins another try if the gate is shut and no try is planned. That is so after a try whose messages needed no transaction: such a try
// neither opens the gate nor plans the next one.
func (w *runner) continueTries() {
	g := &w.gate
	if g.waits.Load() == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		w.from.tryOne()
	}
}

// insist repeats step while a dependency is away, until w.stop is closed, and reports whether step succeeded. It is for a step that must succeed
// before any message can run: the take of the lease.
func (w *runner) insist(step func() error) bool {
	for failed := 1; ; failed++ {
		err := step()
		dependency, isAway := awayOf(err)
		if !isAway || w.ctx.Err() != nil {
			if waited := w.waitNoMore(); waited != nil && err == nil {
				w.p.outage(waited.what).report(nil)
			}
			return err == nil
		}
		w.waitFor(dependency)
		w.p.outage(dependency.what).report(dependency)
		timer := time.NewTimer(probing.Wait(failed))
		select {
		case <-w.stop:
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// waitFor records that a dependency is away, and calls the hook. It does nothing if a dependency is recorded.
func (w *runner) waitFor(dependency unavailable) {
	if w.gate.waits.CompareAndSwap(nil, &waiting{time.Now(), dependency}) {
		tell(w.p.cfg.Hooks.Breaker, Breaker{w.at.topic, w.at.partition, dependency.what, dependency.error})
	}
}

// waitNoMore clears the recorded dependency, calls the hook and returns the record. It returns nil if no dependency is recorded.
func (w *runner) waitNoMore() (waited *waiting) {
	if waited = w.gate.waits.Swap(nil); waited != nil {
		tell(w.p.cfg.Hooks.Breaker, Breaker{Topic: w.at.topic, Partition: w.at.partition, What: waited.what})
	}
	return waited
}
