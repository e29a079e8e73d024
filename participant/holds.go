package participant

import (
	"container/heap"
	"sync"
	"time"
)

// holds are the held keys of one partition and when each is due, so that neither a message of a free key nor waiting
// costs a query. The rows are the truth: a key that turns out to be free is dropped. It may be used concurrently; a key
// is freed only in its own turn in the lane.
type holds struct {
	mu    sync.Mutex
	byKey map[holdKey]*hold
	queue holdQueue
}

type hold struct {
	key   holdKey
	due   time.Time
	place int // in the queue; -1 while the key has its turn
}

// set makes key held, or changes when it is due.
func (h *holds) set(key holdKey, due time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.byKey[key]
	if known == nil {
		if h.byKey == nil {
			h.byKey = make(map[holdKey]*hold)
		}
		known = &hold{key: key, place: -1}
		h.byKey[key] = known
	}
	known.due = due
	h.enqueue(known)
}

func (h *holds) enqueue(known *hold) {
	if known.place < 0 {
		heap.Push(&h.queue, known)
	} else {
		heap.Fix(&h.queue, known.place)
	}
}

// learn is set for what was read from the table: a key that has its turn knows better.
func (h *holds) learn(key holdKey, due time.Time) {
	h.mu.Lock()
	known := h.byKey[key]
	turns := known != nil && known.place < 0
	h.mu.Unlock()
	if !turns {
		h.set(key, due)
	}
}

// settle ends a turn that has not said when the key is due: it is at once.
func (h *holds) settle(key holdKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.byKey[key]; known != nil && known.place < 0 {
		known.due = time.Time{}
		h.enqueue(known)
	}
}

// free drops key.
func (h *holds) free(key holdKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.byKey[key]; known != nil {
		if known.place >= 0 {
			heap.Remove(&h.queue, known.place)
		}
		delete(h.byKey, key)
	}
}

// has says whether m must wait behind another.
func (h *holds) has(m *message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byKey) > 0 && h.byKey[m.holdKey()] != nil
}

func (h *holds) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byKey)
}

// due are the keys whose time has come, each of which has its turn now, and how long the next has to wait.
func (h *holds) due(now time.Time) (keys []holdKey, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.queue) > 0 {
		if wait := h.queue[0].due.Sub(now); wait > 0 {
			return keys, wait
		}
		keys = append(keys, heap.Pop(&h.queue).(*hold).key)
	}
	return keys, time.Hour
}

// holdQueue is a heap by due.
type holdQueue []*hold

func (q holdQueue) Len() int           { return len(q) }
func (q holdQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q holdQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *holdQueue) Push(x any) {
	added := x.(*hold)
	added.place = len(*q)
	*q = append(*q, added)
}

func (q *holdQueue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	last.place = -1
	return last
}
