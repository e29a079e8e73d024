package keyed

import (
	"slices"
	"time"
)

// Config of a Lane. T is an item, M what its low mark says.
type Config[T, M any] struct {
	// Batch is how many items a run takes at most; less than one is one.
	Batch int
	// Spread forms a batch of as many keys as there are, for runs in which the items of a key wait for each other. Else a
	// batch has of the first keys all that waits.
	Spread bool
	// Gather is how long, from the beginning of the pool's last run, less than a batch waits for one that goes on to end: 0
	// is not at all. Where runs have a cost of their own, a larger one after the other is cheaper than small ones at once.
	Gather time.Duration
	// Run works off a batch: items of free keys in the order of their arrival, all of a key's together and in theirs.
	// It says how many of them, counted from the front, have ended, and whether the others are to be run again: they
	// go back to where they came from. Others that are not close the lane: nothing is run after what was left.
	Run func(batch []T) (ended int, again bool)
	// Low is told the mark of the last item below which every item has ended. Calls come one after the other.
	Low func(mark M)
	// Pause and Resume are called as the lane fills above MaxItems or MaxBytes, in waiting and running items, or has
	// MaxGap items, ended or not, above the low mark; and as it has drained to half of each. They must not wait, and
	// must not call the lane.
	Pause, Resume              func()
	MaxItems, MaxBytes, MaxGap int
}

// A Lane keeps the items of one source. It may be used concurrently.
type Lane[T, M any] struct {
	cfg  Config[T, M]
	pool *Pool

	// All of it is the pool's lock's.
	keys    map[uint64]*queue[T]
	free    fifo[*queue[T]] // keys that have items and no run
	order   fifo[entry[M]]  // from the low mark on
	first   uint64          // number of order's first entry
	offered bool            // in the pool's turn
	held    bool
	tries   int // runs that may begin though it is held
	closed  bool
	paused  bool
	runs    int
	running int // items of theirs
	items   int
	bytes   int
	idle    chan struct{} // closed with the lane's last run, once it was closed itself
}

type queue[T any] struct {
	key   uint64
	items fifo[item[T]]
}

type item[T any] struct {
	value  T
	size   int
	number uint64 // in the order, or untracked
}

const untracked = ^uint64(0)

type entry[M any] struct {
	mark  M
	ended bool
}

// NewLane makes a lane that runs nothing until it is released.
func NewLane[T, M any](p *Pool, cfg Config[T, M]) *Lane[T, M] {
	cfg.Batch = max(cfg.Batch, 1)
	return &Lane[T, M]{cfg: cfg, pool: p, keys: make(map[uint64]*queue[T]), held: true, idle: make(chan struct{})}
}

// Item is what Push takes: a value of a number of bytes, whose mark stands in the order of the lane.
type Item[T, M any] struct {
	Value T
	Mark  M
	Key   uint64
	Size  int
}

// Push adds items behind those that are there.
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

// PushAside adds an item that has no place in the order: it waits for its key's turn and moves no mark.
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

// Hold lets nothing more begin, until Release. What runs goes on.
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

// Try lets one run begin though the lane is held.
func (l *Lane[T, M]) Try() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.held {
		l.tries = 1
		l.offer()
	}
}

// Close drops what waits and lets nothing more begin. The returned channel is closed when nothing runs any more.
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
	l.keys, l.free = nil, fifo[*queue[T]]{} // the order stays: what runs may still move the mark
	if l.runs == 0 {
		close(l.idle)
	}
}

// Load is how many items wait or run, and their bytes.
func (l *Lane[T, M]) Load() (items, bytes int) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return l.items, l.bytes
}

// offer enters the pool's turn if there is something to run. If the lane is in it, there may be enough now.
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

// take forms a batch: the free keys in turn, of each what it has.
func (l *Lane[T, M]) take() (work func(), more bool) {
	if !l.runnable() {
		l.offered = false
		return nil, false
	}
	l.tries = 0
	r := run[T, M]{lane: l}
	if l.cfg.Spread {
		l.spread(&r)
	}
	for len(r.items) < l.cfg.Batch && l.free.len() > 0 {
		q := l.free.pop()
		r.queues = append(r.queues, q)
		for len(r.items) < l.cfg.Batch && q.items.len() > 0 {
			r.items = append(r.items, q.items.pop())
		}
		r.ends = append(r.ends, len(r.items))
	}
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

// spread takes an item of each free key, and then, while there is room, another of each that has one. Those of a key stand
// together all the same.
func (l *Lane[T, M]) spread(r *run[T, M]) {
	batch := max(l.cfg.Batch, 1)
	for len(r.queues) < batch && l.free.len() > 0 {
		r.queues = append(r.queues, l.free.pop())
	}
	shares := make([]int, len(r.queues))
	for taken, before := 0, -1; taken < batch && taken != before; {
		before = taken
		for i, q := range r.queues {
			if taken < batch && shares[i] < q.items.len() {
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

// run is one batch under way.
type run[T, M any] struct {
	lane   *Lane[T, M]
	queues []*queue[T]
	ends   []int // where each queue's items end
	items  []item[T]
}

func (r run[T, M]) work() {
	values := make([]T, len(r.items))
	for i := range r.items {
		values[i] = r.items[i].value
	}
	ended, again := 0, false
	defer func() { r.lane.end(r, ended, again) }() // also when a run takes its goroutine along
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

// settle notes what has ended and moves the low mark over what lies without a gap.
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

// regulate stops and starts the source.
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
