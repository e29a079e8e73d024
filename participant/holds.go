package participant

import (
	"container/heap"
	"time"
)

// holds are the held keys of one partition and when each is due, so that neither a message of a free key nor waiting
// costs a query. The rows are the truth: a key that turns out to be free is dropped.
type holds struct {
	byKey map[holdKey]*hold
	queue holdQueue
}

type hold struct {
	key   holdKey
	due   time.Time
	place int
}

// set makes key held, or changes when it is due.
func (h *holds) set(key holdKey, due time.Time) {
	if known := h.byKey[key]; known != nil {
		known.due = due
		heap.Fix(&h.queue, known.place)
		return
	}
	if h.byKey == nil {
		h.byKey = make(map[holdKey]*hold)
	}
	added := &hold{key: key, due: due}
	h.byKey[key] = added
	heap.Push(&h.queue, added)
}

// free drops key.
func (h *holds) free(key holdKey) {
	if known := h.byKey[key]; known != nil {
		heap.Remove(&h.queue, known.place)
		delete(h.byKey, key)
	}
}

// holds says whether m must wait behind another. Without held keys it costs nothing.
func (h *holds) has(m *message) bool {
	return len(h.byKey) > 0 && h.byKey[m.holdKey()] != nil
}

// next is the key that is due first.
func (h *holds) next() (key holdKey, due time.Time, ok bool) {
	if len(h.queue) == 0 {
		return holdKey{}, time.Time{}, false
	}
	return h.queue[0].key, h.queue[0].due, true
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
	return last
}
