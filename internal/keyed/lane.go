package keyed

import (
	"slices"
	"time"
)

// Config configures a Lane. T is an item, M the type of marks.
type Config[T, M any] struct {
	// Batch is the maximum number of items of a run; less than one is one.
	Batch int
	// Spread forms a batch of as many keys as possible, for runs in which the items of a key wait for each other. Without it a
	// batch has all waiting items of the first keys.
	Spread bool
	// Gather bounds the time, from the start of the pool's last run, for which an incomplete batch waits for a run in progress to
	// end: 0 is no wait. If each run has a fixed cost, one larger run after the other is cheaper than small concurrent ones.
	Gather time.Duration
	// Run processes a batch: items of free keys in the order of arrival of the keys, all items of a key together and in their
	// order. It returns how many of them, counted from the front, have ended, and whether the others are to run again: then they
	// return to the front of their queues. If some have not ended and are not to run again, the lane closes: no later item runs.
	Run func(batch []T) (ended int, again bool)
	// Admit, if set, is called with an item that is about to be taken into a run, and its place in the run. If it returns a reason,
	// the item and the later ones of its key wait until Unpark is called with that reason; if the reason is NextRun, until the next
	// run. If it returns last, no other item follows in the run. It must not block, and must not call the lane.
	Admit func(item T, place Place) (wait any, last bool)
	// Low is called with the mark of the last item below which every item has ended. Calls are sequential.
	Low func(mark M)
	// Pause and Resume are called when the lane reaches MaxItems or MaxBytes, of waiting and running items, or MaxGap items,
	// ended or not, above the low mark; and when it is below half of each. They must not block, and must not call the lane.
	Pause, Resume              func()
	MaxItems, MaxBytes, MaxGap int
}

// A Lane holds the items of one source. It may be used concurrently.
type Lane[T, M any] struct {
	cfg  Config[T, M]
	pool *Pool

	// The pool's lock guards all fields below.
	keys    map[uint64]*queue[T]
	free    fifo[*queue[T]]          // keys that have items and no run
	parked  map[any]*fifo[*queue[T]] // keys whose first item Admit refused, by its reason
	since   time.Time                // the time since which parked has not been empty
	order   fifo[entry[M]]           // from the low mark on
	first   uint64                   // number of order's first entry
	offered bool                     // it is in pool.ready
	held    bool
	tries   int // runs that may begin although it is held
	closed  bool
	paused  bool
	runs    int
	running int // items of the runs in progress
	items   int
	bytes   int
	idle    chan struct{} // closed after Close, when no run is in progress
}

type queue[T any] struct {
	key   uint64
	items fifo[item[T]]
}

type item[T any] struct {
	value  T
	size   int
	number uint64 // number in the order, or untracked
}

const untracked = ^uint64(0)

type entry[M any] struct {
	mark  M
	ended bool
}

// NewLane makes a lane that runs nothing until Release.
func NewLane[T, M any](p *Pool, cfg Config[T, M]) *Lane[T, M] {
	cfg.Batch = max(cfg.Batch, 1)
	return &Lane[T, M]{cfg: cfg, pool: p, keys: make(map[uint64]*queue[T]), held: true, idle: make(chan struct{})}
}

// Item is an element of Push: a value of a number of bytes, whose mark has a position in the order of the lane.
type Item[T, M any] struct {
	Value T
	Mark  M
	Key   uint64
	Size  int
}

// Push appends items.
func (l *Lane[T, M]) Push(items ...Item[T, M]) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.closed {
		return
	}
	for _, i := range items {
		l.order.push(entry[M]{mark: i.Mark})
		l.add(i.Key, item[T]{i.Value, i.Size, l.first + uint64(l.order.len()) - 1})
	}
	l.offer()
	l.regulate()
}

// PushAside adds an item without a position in the order: it waits for its key's turn and moves no mark.
func (l *Lane[T, M]) PushAside(key uint64, value T) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.closed {
		return
	}
	l.add(key, item[T]{value, 0, untracked})
	l.offer()
}

func (l *Lane[T, M]) add(key uint64, i item[T]) {
	q := l.keys[key]
	if q == nil {
		q = &queue[T]{key: key}
		l.keys[key] = q
		l.free.push(q)
	}
	q.items.push(i)
	l.items++
	l.bytes += i.size
}

// Hold prevents new runs until Release. Runs in progress continue.
func (l *Lane[T, M]) Hold() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.held = true
}

// Release ends a Hold.
func (l *Lane[T, M]) Release() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.held, l.tries = false, 0
	l.offer()
}

// Try lets one run begin although the lane is held.
func (l *Lane[T, M]) Try() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.held {
		l.tries = 1
		l.offer()
	}
}

// Close drops the waiting items and prevents new runs. The returned channel is closed when no run is in progress.
func (l *Lane[T, M]) Close() (idle <-chan struct{}) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.close()
	return l.idle
}

func (l *Lane[T, M]) close() {
	if l.closed {
		return
	}
	l.closed = true
	l.keys, l.free, l.parked = nil, fifo[*queue[T]]{}, nil // the order stays: runs in progress may still move the mark
	if l.runs == 0 {
		close(l.idle)
	}
}

// Load returns how many items wait or run, and their bytes.
func (l *Lane[T, M]) Load() (items, bytes int) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return l.items, l.bytes
}

// offer adds the lane to pool.ready if it has something to run. A lane that is in it already may have a complete batch now.
func (l *Lane[T, M]) offer() {
	if !l.runnable() {
		return
	}
	if !l.offered {
		l.offered = true
		l.pool.ready = append(l.pool.ready, l)
	}
	l.pool.widen()
}

func (l *Lane[T, M]) runnable() bool {
	return (!l.held || l.tries > 0) && !l.closed && l.free.len() > 0
}

// take forms a batch: all items of each free key in turn, up to Batch.
func (l *Lane[T, M]) take() (work func(), more bool) {
	if !l.runnable() {
		l.offered = false
		return nil, false
	}
	r := run[T, M]{lane: l}
	if l.cfg.Spread {
		l.spread(&r)
	}
	for len(r.items) < l.cfg.Batch && !r.full && l.free.len() > 0 {
		q, began := l.free.pop(), len(r.items)
		for len(r.items) < l.cfg.Batch && !r.full && q.items.len() > 0 && l.admits(&r, q, 0, placeOf(len(r.items), began)) {
			r.items = append(r.items, q.items.pop())
		}
		if len(r.items) > began {
			r.queues, r.ends = append(r.queues, q), append(r.ends, len(r.items))
		}
	}
	if l.offered = l.runnable(); len(r.items) == 0 {
		return nil, l.offered
	}
	l.tries = 0
	l.runs++
	l.running += len(r.items)
	l.offered = l.runnable()
	return r.work, l.offered
}

func (l *Lane[T, M]) gathers() time.Duration {
	if l.items-l.running >= l.cfg.Batch {
		return 0
	}
	return l.cfg.Gather
}

// spread takes an item of each free key, and then, while there is room, another of each that has one. The items of a key are
// still next to each other in the batch.
func (l *Lane[T, M]) spread(r *run[T, M]) {
	batch := max(l.cfg.Batch, 1)
	for len(r.queues) < batch && !r.full && l.free.len() > 0 {
		if q := l.free.pop(); l.admits(r, q, 0, placeOf(len(r.queues), len(r.queues))) {
			r.queues = append(r.queues, q)
		}
	}
	shares, more := make([]int, len(r.queues)), make([]bool, len(r.queues))
	for i := range r.queues {
		shares[i], more[i] = 1, true
	}
	for taken, before := len(r.queues), -1; taken < batch && taken != before; {
		before = taken
		for i, q := range r.queues {
			if more[i] = more[i] && taken < batch && !r.full && shares[i] < q.items.len() && l.admits(r, q, shares[i], Behind); more[i] {
				shares[i]++
				taken++
			}
		}
	}
	for i, q := range r.queues {
		for range shares[i] {
			r.items = append(r.items, q.items.pop())
		}
		r.ends = append(r.ends, len(r.items))
	}
}

// run is one batch in progress.
type run[T, M any] struct {
	lane   *Lane[T, M]
	queues []*queue[T]
	ends   []int // where each queue's items end
	items  []item[T]
	full   bool // Admit returned last
}

func (r run[T, M]) work() {
	values := make([]T, len(r.items))
	for i := range r.items {
		values[i] = r.items[i].value
	}
	ended, again := 0, false
	defer func() { r.lane.end(r, ended, again) }() // also if Run ends its goroutine
	ended, again = r.lane.cfg.Run(values)
}

func (l *Lane[T, M]) end(r run[T, M], ended int, again bool) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.runs--
	l.running -= len(r.items)
	gone := r.items
	if again = again && !l.closed; again {
		gone = r.items[:ended]
	}
	for _, i := range gone {
		l.items--
		l.bytes -= i.size
	}
	l.settle(r.items[:ended])
	switch {
	case l.closed && l.runs == 0:
		close(l.idle)
	case !l.closed && !again && ended < len(r.items):
		l.close()
	}
	if l.closed {
		return
	}
	for i, q := range slices.Backward(r.queues) {
		back := false
		for n := r.ends[i]; again && n > ended && (i == 0 || n > r.ends[i-1]); n-- {
			q.items.pushFront(r.items[n-1])
			back = true
		}
		switch {
		case back:
			l.free.pushFront(q)
		case q.items.len() > 0:
			l.free.push(q)
		default:
			delete(l.keys, q.key)
		}
	}
	l.offer()
	l.regulate()
}

// settle records the items that have ended, and moves the low mark over those without a gap.
func (l *Lane[T, M]) settle(items []item[T]) {
	for _, i := range items {
		if i.number != untracked {
			l.order.at(int(i.number - l.first)).ended = true
		}
	}
	var low M
	moved := false
	for l.order.len() > 0 && l.order.at(0).ended {
		low, moved = l.order.pop().mark, true
		l.first++
	}
	if moved && l.cfg.Low != nil {
		l.cfg.Low(low)
	}
}

// regulate pauses and resumes the source.
func (l *Lane[T, M]) regulate() {
	above := func(n, limit int) bool { return limit > 0 && n >= limit }
	switch {
	case !l.paused && (above(l.items, l.cfg.MaxItems) || above(l.bytes, l.cfg.MaxBytes) || above(l.order.len(), l.cfg.MaxGap)):
		l.paused = true
		l.cfg.Pause()
	case l.paused && !above(l.items, l.cfg.MaxItems/2) && !above(l.bytes, l.cfg.MaxBytes/2) && !above(l.order.len(), l.cfg.MaxGap/2):
		l.paused = false
		l.cfg.Resume()
	}
}
