package keyed

import "time"

// Place is the place of an item in a run.
type Place int

const (
	First      Place = iota // of all items
	FirstOfKey              // items of other keys precede it
	Behind                  // an item of its key precedes it
)

// placeOf returns the place of the next item of a run of n items, the last of which, from began on, are of its key.
func placeOf(n, began int) Place {
	switch {
	case n == 0:
		return First
	case n == began:
		return FirstOfKey
	}
	return Behind
}

// NextRun is the reason of an item that is not admitted to a run with others. It is the first item of the next one, which has no
// other reason to wait.
var NextRun any = new(int)

// admits reports whether the item at a position of q may be taken into r. If not, and it is the first of its key, q waits for
// Unpark, or for the next run.
func (l *Lane[T, M]) admits(r *run[T, M], q *queue[T], at int, place Place) bool {
	if l.cfg.Admit == nil {
		return true
	}
	wait, last := l.cfg.Admit(q.items.at(at).value, place)
	r.full = last && wait == nil
	switch {
	case wait == nil:
		return true
	case place == Behind: // q is free again after the run
	case wait == NextRun:
		l.free.pushFront(q)
		r.full = true
	default:
		l.park(q, wait)
	}
	return false
}

func (l *Lane[T, M]) park(q *queue[T], wait any) {
	if len(l.parked) == 0 {
		l.since = time.Now()
	}
	if l.parked[wait] == nil {
		if l.parked == nil {
			l.parked = make(map[any]*fifo[*queue[T]])
		}
		l.parked[wait] = new(fifo[*queue[T]])
	}
	l.parked[wait].push(q)
}

// Unpark ends the wait of at most n keys that wait for a reason: they run before other keys. It returns their number; or 0 if the lane is
// held, so that they cannot run before Release.
func (l *Lane[T, M]) Unpark(wait any, n int) int {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	qs := l.parked[wait]
	if qs == nil {
		return 0
	}
	n = min(n, qs.len())
	unparked := make([]*queue[T], n)
	for i := range unparked {
		unparked[i] = qs.pop()
	}
	if qs.len() == 0 {
		delete(l.parked, wait)
	}
	for i := range unparked {
		l.free.pushFront(unparked[n-1-i])
	}
	l.offer()
	if l.held && l.tries == 0 {
		return 0
	}
	return n
}

// Parked returns how many keys wait for a reason.
func (l *Lane[T, M]) Parked(wait any) int {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if qs := l.parked[wait]; qs != nil {
		return qs.len()
	}
	return 0
}
