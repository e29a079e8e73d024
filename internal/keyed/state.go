package keyed

import "time"

// State is a snapshot of a Lane.
type State[M any] struct {
	Waiting int       // items that have not begun
	Running int       // items in a run
	Parked  int       // keys whose first item Admit refused
	Since   time.Time // the time since which Parked has not been 0
	Held    bool      // no run begins until Release
	Open    bool      // some item has not ended
	Oldest  M         // mark of the first item that has not ended, if Open
}

// State returns a consistent snapshot.
func (l *Lane[T, M]) State() State[M] {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	s := State[M]{Waiting: l.items - l.running, Running: l.running, Held: l.held}
	for _, qs := range l.parked {
		s.Parked += qs.len()
	}
	if s.Parked > 0 {
		s.Since = l.since
	}
	if l.order.len() > 0 {
		s.Open, s.Oldest = true, l.order.at(0).mark
	}
	return s
}
