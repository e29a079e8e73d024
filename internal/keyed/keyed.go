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

import "sync"

// A Pool runs what its lanes have. It may be used concurrently.
type Pool struct {
	mu    sync.Mutex
	limit int
	busy  int
	ready []lane // those that have something to run, in turn; a lane is in here once
}

// lane is what a Pool sees of a Lane. All but work is called with the pool's lock held.
type lane interface {
	take() (work func(), more bool)
}

// NewPool makes a Pool of at most limit runs at once; less than one is one.
func NewPool(limit int) *Pool { return &Pool{limit: max(limit, 1)} }

// offer puts l into the turn and starts a goroutine for it, if there may be one more. The lock is held.
func (p *Pool) offer(l lane) {
	p.ready = append(p.ready, l)
	if p.busy < p.limit {
		p.busy++
		go p.work()
	}
}

// work goes on while a lane has something.
func (p *Pool) work() {
	done := false
	defer func() {
		if !done { // a run took the goroutine along
			p.mu.Lock()
			defer p.mu.Unlock()
			p.next(1)
		}
	}()
	p.mu.Lock()
	for len(p.ready) > 0 {
		l := p.ready[0]
		p.ready[0] = nil
		p.ready = p.ready[1:]
		run, more := l.take()
		if more {
			p.ready = append(p.ready, l)
		}
		p.mu.Unlock()
		if run != nil {
			run()
		}
		p.mu.Lock()
	}
	p.busy--
	done = true
	p.mu.Unlock()
}

// next replaces n goroutines that are gone.
func (p *Pool) next(n int) {
	p.busy -= n
	if len(p.ready) > 0 && p.busy < p.limit {
		p.busy++
		go p.work()
	}
}
