package participant

import (
	"container/heap"
	"sync"
	"time"
)

// holds has the held keys of one partition and when each is due, so that neither a message of a free key nor a wait costs a
// query. The rows decide: a key that turns out to be free is dropped. It may be used concurrently; a key is freed only in its
// own turn in the lane.
type holds struct {
	mu    sync.Mutex
	byKey map[holdKey]*hold
	queue holdQueue
}

type hold struct {
	key   holdKey
	due   time.Time
	place int // index in the queue; -1 while the key has its turn
}

// set adds a held key, or changes when it is due.
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

// learn sets a key that was read from the table, unless the key has its turn: then the turn sets a newer time.
func (h *holds) learn(key holdKey, due time.Time) {
	h.mu.Lock()
	known := h.byKey[key]
	turns := known != nil && known.place < 0
	h.mu.Unlock()
	if !turns {
		h.set(key, due)
	}
}

// settle ends a turn that has not set when the key is due: it is due at once.
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

// has reports whether m must wait behind another message.
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

// due returns the keys that are due, each of which has its turn from now on, and how long the next one has to wait. No more than most
// keys have their turn at once: due is to be called again when one has ended.
func (h *holds) due(now time.Time, most int) (keys []holdKey, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.queue) > 0 && len(h.byKey)-len(h.queue) < most {
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
