// Package keyed runs items side by side and in order per key.
//
//	             ┌─ key a: 1 4 7 ─┐
//	Push ─► Lane ┼─ key b: 2 5    ┼─► Pool: at most n runs at once ─► run(batch) ─► low mark
//	             └─ key c: 3 6    ┘
//
// A Lane is one ordered source, such as a partition of a topic. Of a key one run goes on at a time, and its items come
// in the order in which they were pushed; items of different keys overtake each other. What has ended without a gap
// before it is the lane's low mark. A Pool bounds how many runs go on at once over all its lanes, which take turns.
//
// Nothing here waits: Push takes whatever comes, and Pause and Resume tell the source when to stop bringing more.
package keyed

import (
	"runtime"
	"sync"
	"time"
)

// A Pool runs what its lanes have. It may be used concurrently.
type Pool struct {
	mu    sync.Mutex
	limit int
	busy  int
	ready []lane      // those that have something to run, in turn; a lane is in here once
	began time.Time   // of the last run
	again *time.Timer // looks whether what gathers has waited long enough; nil: none is set
}

// lane is what a Pool sees of a Lane. All but work is called with the pool's lock held.
type lane interface {
	take() (work func(), more bool)
	// gathers is how long what there is waits for a run that goes on, from its beginning; 0: not at all.
	gathers() time.Duration
}

// NewPool makes a Pool of at most limit runs at once; less than one is one.
func NewPool(limit int) *Pool { return &Pool{limit: max(limit, 1)} }

// widen starts one more goroutine, if there may be one, and something in the turn that need not wait for the others. The lock
// is held, as by all that it calls.
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

// wait is how long the next run should wait while so many others go on. If one lane has something that need not wait, the
// lanes before it in turn do not either.
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

// work goes on while a lane has something that need not wait.
func (p *Pool) work() {
	done := false
	defer func() {
		if !done { // a run took the goroutine along
			p.mu.Lock()
			defer p.mu.Unlock()
			p.leave()
		}
	}()
	// Whoever is about to push, such as all that one commit has woken, may well push before: a run for one of them and another
	// for the rest would cost twice.
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

// leave is a goroutine's end.
func (p *Pool) leave() {
	p.busy--
	p.widen()
}
