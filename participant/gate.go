package participant

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/retry"
)

// unavailable is an error that is not about the message: it reports a dependency as away.
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

// gate is a circuit breaker: it is shut while a dependency of the partition's messages is away. Then nothing begins but, from
// time to time, one run that tries; messages that could not run are put back in their order.
type gate struct {
	waits atomic.Pointer[waiting]

	mu     sync.Mutex
	failed int
	next   *time.Timer // to the next try; nil while one runs
}

// waiting is the time during which a partition waits for a dependency.
type waiting struct {
	since time.Time
	unavailable
}

var probing = retry.Policy{Initial: 50 * time.Millisecond, Cap: 2 * time.Second}

// goes runs step and reports success. On retry.Unavailable it shuts the gate; on errFenced it gives the partition up. Without success
// the messages must be tried again, or belong to another member by now.
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
		if waits := w.gate.waits.Load(); waits != nil { // the error says nothing about the dependency: it is tried again
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
		return // it had begun before
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
		return // it had begun before, and did not need the dependency
	}
	waited := w.waitNoMore()
	if waited == nil {
		return
	}
	g.failed = 0
	w.p.outage(waited.what).report(nil)
	w.from.resume()
}

// continueTries begins another try if the gate is shut and no try is planned. That is so after a run whose messages needed no transaction: it
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

// insist runs a step that must succeed before any message can run: it repeats the step until stop.
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

// waitFor records the dependency that is away, unless one is recorded.
func (w *runner) waitFor(dependency unavailable) {
	if w.gate.waits.CompareAndSwap(nil, &waiting{time.Now(), dependency}) {
		tell(w.p.cfg.Hooks.Breaker, Breaker{w.at.topic, w.at.partition, dependency.what, dependency.error})
	}
}

// waitNoMore clears and returns the recorded dependency, or nil.
func (w *runner) waitNoMore() (waited *waiting) {
	if waited = w.gate.waits.Swap(nil); waited != nil {
		tell(w.p.cfg.Hooks.Breaker, Breaker{Topic: w.at.topic, Partition: w.at.partition, What: waited.what})
	}
	return waited
}
