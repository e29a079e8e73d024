package participant

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/retry"
)

// unavailable is an error that reports a dependency as away. It is not about the message.
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

// gate is the circuit breaker of a runner. It is shut while a dependency is away. Then no message begins, except one from time to time as a try.
// Messages that could not run are put back in their order.
type gate struct {
	waits atomic.Pointer[waiting]

	mu     sync.Mutex
	failed int
	next   *time.Timer // to the next try; nil while one runs
}

// waiting is the wait for a dependency that is away.
type waiting struct {
	since time.Time
	unavailable
}

var probing = retry.Policy{Initial: 50 * time.Millisecond, Cap: 2 * time.Second}

// goes runs step and reports success. If a dependency is away, it shuts the gate. After errFenced it gives the partition up. Without success the
// messages of step must be tried again, unless another member owns them now.
func (w *runner) goes(step func() error) bool {
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

// continueTries begins another try if the gate is shut and none is planned. This is so after a run whose messages needed no transaction: such a run
// neither opens the gate nor plans the next try.
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

// insist repeats step while a dependency is away, until w.stop is closed, and reports success. It is for a step that must succeed before any message
// can run.
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

// waitFor records a dependency as away, unless one is recorded, and calls the hook.
func (w *runner) waitFor(dependency unavailable) {
	if w.gate.waits.CompareAndSwap(nil, &waiting{time.Now(), dependency}) {
		tell(w.p.cfg.Hooks.Breaker, Breaker{w.at.topic, w.at.partition, dependency.what, dependency.error})
	}
}

// waitNoMore clears the recorded dependency and returns it, and calls the hook. It returns nil if none is recorded.
func (w *runner) waitNoMore() (waited *waiting) {
	if waited = w.gate.waits.Swap(nil); waited != nil {
		tell(w.p.cfg.Hooks.Breaker, Breaker{Topic: w.at.topic, Partition: w.at.partition, What: waited.what})
	}
	return waited
}
