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

// gate is shut while something is away that the partition's messages need: a circuit breaker. The run that found out
// tries again from time to time; others that had begun wait for it.
type gate struct {
	waits atomic.Pointer[waiting]
	mu    sync.Mutex
	probe chan struct{} // closed when the one that tries has ended; nil: nobody tries
}

// waiting is a partition's time without something it needs.
type waiting struct {
	since time.Time
	unavailable
}

var probing = retry.Policy{Initial: 50 * time.Millisecond, Cap: 2 * time.Second}

// insist runs step until it has an answer, while what it needs is away. It says no when the worker was stopped or
// fenced first.
func (w *worker) insist(step func() error) bool {
	probes := false
	for failed := 1; ; failed++ {
		err := step()
		var away unavailable
		if !errors.As(err, &away) || w.ctx.Err() != nil {
			if probes {
				w.open(err == nil)
			}
			if errors.Is(err, errFenced) {
				w.fenced()
			}
			return err == nil
		}
		if !probes {
			other := w.shut(away)
			probes = other == nil
			if !probes {
				select {
				case <-other:
					continue
				case <-w.stop:
					return false
				}
			}
		}
		w.p.outage(away.what).report(err)
		timer := time.NewTimer(probing.Wait(failed))
		select {
		case <-w.stop:
			timer.Stop()
			w.open(false)
			return false
		case <-timer.C:
		}
	}
}

// shut lets nothing more begin. Where another run tries already, its end is returned.
func (w *worker) shut(away unavailable) (other <-chan struct{}) {
	g := &w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.probe != nil {
		return g.probe
	}
	g.probe = make(chan struct{})
	g.waits.CompareAndSwap(nil, &waiting{time.Now(), away})
	w.lane.Hold()
	return nil
}

// open ends a try. Where it came through, the partition goes on.
func (w *worker) open(through bool) {
	g := &w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.probe)
	g.probe = nil
	if through {
		w.p.outage(g.waits.Swap(nil).what).report(nil)
		w.lane.Release()
	}
}
