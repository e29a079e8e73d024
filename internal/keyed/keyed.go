// Package keyed runs items concurrently, and in order per key.
//
//	             ┌─ key a: 1 4 7 ─┐
//	Push ─► Lane ┼─ key b: 2 5    ┼─► Pool: at most n runs at once ─► run(batch) ─► low mark
//	             └─ key c: 3 6    ┘
//
// A Lane is one ordered source, such as a partition of a topic. At most one run of a key is in progress, and its items run in the
// order in which they were pushed; items of different keys overtake each other. The lane's low mark is the mark of the last item
// below which all items have ended. A Pool bounds the concurrent runs of all its lanes, which take turns.
//
// No method blocks: Push accepts every item, and Pause and Resume tell the source when to stop and continue.
package keyed

import (
	"runtime"
	"sync"
	"time"
)

// A Pool runs the items of its lanes. It may be used concurrently.
type Pool struct {
	mu    sync.Mutex
	limit int
	busy  int
	ready []lane      // lanes that have something to run, in turn; each lane is in it at most once
	began time.Time   // start of the last run
	again *time.Timer // checks whether a gathering batch has waited long enough; nil: not set
}

// lane is the part of a Lane that a Pool uses. All methods except work are called with the pool's lock held.
type lane interface {
	take() (work func(), more bool)
	// gathers returns how long, from the start of the last run, an incomplete batch waits while a run is in progress; 0: not at
	// all.
	gathers() time.Duration
}

// NewPool makes a Pool of at most limit concurrent runs; a limit below one is one.
func NewPool(limit int) *Pool { return &Pool{limit: max(limit, 1)} }

// widen starts one more goroutine, if the limit allows it and a lane has something that need not wait for other runs. The lock is
// held, as in everything that it calls.
func (p *Pool) widen() {
	if len(p.ready) == 0 || p.busy >= p.limit {
		return
	}
	if wait := p.wait(p.busy); wait > 0 {
		p.lookAgain(wait)
		return
	}
	p.busy++
	go p.work()
}

// wait returns how long the next run should wait while that number of other runs is in progress. If one lane has something that
// need not wait, the lanes before it do not wait either.
func (p *Pool) wait(others int) time.Duration {
	if others == 0 {
		return 0
	}
	least := p.ready[0].gathers()
	for _, l := range p.ready[1:] {
		least = min(least, l.gathers())
	}
	if least == 0 {
		return 0
	}
	return least - time.Since(p.began)
}

func (p *Pool) lookAgain(in time.Duration) {
	if p.again != nil {
		return
	}
	p.again = time.AfterFunc(in, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.again = nil
		p.widen()
	})
}

// work takes and runs batches while a lane has something that need not wait.
func (p *Pool) work() {
	done := false
	defer func() {
		if !done { // a run ended the goroutine: runtime.Goexit or a panic
			p.mu.Lock()
			defer p.mu.Unlock()
			p.leave()
		}
	}()
	// Yield once: goroutines that the same commit woke are about to push, and one run for all their items is cheaper than two.
	runtime.Gosched()
	p.mu.Lock()
	for len(p.ready) > 0 && p.wait(p.busy-1) <= 0 {
		l := p.ready[0]
		p.ready[0] = nil
		p.ready = p.ready[1:]
		run, more := l.take()
		if more {
			p.ready = append(p.ready, l)
		}
		if run != nil {
			p.began = time.Now()
			p.widen()
		}
		p.mu.Unlock()
		if run != nil {
			run()
		}
		p.mu.Lock()
	}
	p.leave()
	done = true
	p.mu.Unlock()
}

// leave ends a goroutine.
func (p *Pool) leave() {
	p.busy--
	p.widen()
}
