package participant

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/retry"
)

// Unavailable says that something a handler needs is away, by its name: a service, a cache, a bank. It says nothing
// about the message. The handler's partition begins no other message and tries this one from time to time until it
// comes through, with no attempt counted; Ready says so meanwhile.
//
// It is for what every message needs. What only some need is better retried: then their keys are held and others go on.
func Unavailable(what string, err error) error { return unavailable{what, err} }

// unavailable is an error that says nothing about the message.
type unavailable struct {
	what string
	error
}

func (u unavailable) Unwrap() error { return u.error }

const theDatabase = "the database"

func database(err error) error { return unavailable{theDatabase, err} }

// gate is shut while something is away that the partition's messages need: a circuit breaker. Nothing begins then but,
// from time to time, one run that tries; what it and others could not do is put back into its place.
type gate struct {
	waits atomic.Pointer[waiting]

	mu     sync.Mutex
	failed int
	next   *time.Timer // to the next try; nil while one runs
}

// waiting is a partition's time without something it needs.
type waiting struct {
	since time.Time
	unavailable
}

var probing = retry.Policy{Initial: 50 * time.Millisecond, Cap: 2 * time.Second}

// goes says whether step has got its answer. Else what it was for is to be tried again, or somebody else's by now.
func (w *runner) goes(step func() error) bool {
	err := step()
	var away unavailable
	switch {
	case err == nil:
		w.open()
		return true
	case errors.Is(err, errFenced):
		w.from.fenced()
	case errors.As(err, &away) && w.ctx.Err() == nil:
		w.shut(away)
	}
	return false
}

func (w *runner) shut(away unavailable) {
	w.p.outage(away.what).report(away)
	g := &w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next != nil {
		return // it had begun before
	}
	w.waitFor(away)
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
		return // it had begun before, and did not need what is away
	}
	waited := w.waitNoMore()
	if waited == nil {
		return
	}
	g.failed = 0
	w.p.outage(waited.what).report(nil)
	w.from.resume()
}

// insist is goes for what must be done before anything can run: it goes on until stop.
func (w *runner) insist(step func() error) bool {
	for failed := 1; ; failed++ {
		err := step()
		var away unavailable
		if !errors.As(err, &away) || w.ctx.Err() != nil {
			if waited := w.waitNoMore(); waited != nil && err == nil {
				w.p.outage(waited.what).report(nil)
			}
			return err == nil
		}
		w.waitFor(away)
		w.p.outage(away.what).report(away)
		timer := time.NewTimer(probing.Wait(failed))
		select {
		case <-w.stop:
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// waitFor notes what is away, unless something was before.
func (w *runner) waitFor(away unavailable) {
	if w.gate.waits.CompareAndSwap(nil, &waiting{time.Now(), away}) {
		tell(w.p.cfg.Hooks.Breaker, Breaker{w.at.topic, w.at.partition, away.what, away.error})
	}
}

// waitNoMore says what was away, if anything was.
func (w *runner) waitNoMore() (waited *waiting) {
	if waited = w.gate.waits.Swap(nil); waited != nil {
		tell(w.p.cfg.Hooks.Breaker, Breaker{Topic: w.at.topic, Partition: w.at.partition, What: waited.what})
	}
	return waited
}
