package keyed

// State is what a Lane is at.
type State[M any] struct {
	Waiting int  // items that have not begun
	Running int  // items that are run
	Held    bool // nothing begins until Release
	Open    bool // something has not ended
	Oldest  M    // the first of what has not ended, when Open
}

// State is of one moment.
func (l *Lane[T, M]) State() State[M] {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	s := State[M]{Waiting: l.items - l.running, Running: l.running, Held: l.held}
	if l.order.len() > 0 {
		s.Open, s.Oldest = true, l.order.at(0).mark
	}
	return s
}
