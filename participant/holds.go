package participant

import (
	"container/heap"
	"sync"
	"time"
)

// holds caches the held keys of one partition and when each is due, so that no query is needed for a message of a free key, or for a wait. The rows
// of troupe.held decide: if a key's turn finds no rows, the key is dropped from holds. A key is dropped only in its own turn in the lane. holds may
// be used concurrently.
type holds struct {
	mu    sync.Mutex
	byKey map[holdKey]*hold
	queue holdQueue
	waits int // turns of keys whose handlers have limits: they wait for a permit, or have one
}

type hold struct {
	key   holdKey
	due   time.Time
	place int // index in the queue; -1 while the key has its turn

	limits *limits // of the handler of its first message, if they are known; nil: none
	waits  bool    // its turn waits for a permit, or has one
}

// turn is one try of a held key, in which a worker reads and runs the key's first messages.
type turn struct {
	key    holdKey
	limits *limits
}

// limitedAgain is the time after which a key whose handler has limits is due again, if as many turns as allowed wait for permits.
const limitedAgain = time.Second

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
	h.endTurn(known)
	if known.place < 0 {
		heap.Push(&h.queue, known)
	} else {
		heap.Fix(&h.queue, known.place)
	}
}

// learn sets when a key is due, as read from troupe.held. It does nothing while the key has its turn: the turn sets a newer time.
func (h *holds) learn(key holdKey, due time.Time) {
	h.mu.Lock()
	known := h.byKey[key]
	turns := known != nil && known.place < 0
	h.mu.Unlock()
	if !turns {
		h.set(key, due)
	}
}

// settle makes a key due at once if its turn has not set when the key is due: the first message has ended, and the limits of the next message's
// handler are not known.
func (h *holds) settle(key holdKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.byKey[key]; known != nil && known.place < 0 {
		known.due, known.limits = time.Time{}, nil
		h.enqueue(known)
	}
}

// free drops key, which has no held messages any more.
func (h *holds) free(key holdKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.byKey[key]; known != nil {
		h.endTurn(known)
		if known.place >= 0 {
			heap.Remove(&h.queue, known.place)
		}
		delete(h.byKey, key)
	}
}

// has reports whether m's key is held, so that m must wait behind a held message.
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

// due returns the turns of the keys that are due, and the wait until the next key is due. Each returned key has its turn until set, settle or free
// ends it. At most 2*most keys have their turn at the same time: most keys without limits, and most keys with limits. Call due again when a turn has
// ended.
func (h *holds) due(now time.Time, most int) (turns []turn, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.queue) > 0 && len(h.byKey)-len(h.queue)-h.waits < most {
		first := h.queue[0]
		if wait := first.due.Sub(now); wait > 0 {
			return turns, wait
		}
		if first.limits != nil {
			if h.waits >= most {
				first.due = now.Add(limitedAgain)
				heap.Fix(&h.queue, 0)
				continue
			}
			first.waits = true
			h.waits++
		}
		heap.Pop(&h.queue)
		turns = append(turns, turn{first.key, first.limits})
	}
	return turns, time.Hour
}

// limit stores l as the limits of the handler of the first held message of key. l is nil if that handler has no limits. limit does nothing if key is
// not held.
func (h *holds) limit(key holdKey, l *limits) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.byKey[key]; known != nil {
		known.limits = l
	}
}

// endTurn subtracts known's turn from h.waits, if it was counted there.
func (h *holds) endTurn(known *hold) {
	if known.waits {
		known.waits = false
		h.waits--
	}
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
