package explore

import (
	"encoding/binary"
	"slices"
)

// maxAwaited is the maximum number of awaited events: the bits of published.
const maxAwaited = 32

// The states of a command in its participant's barrier.
const (
	unknown  = iota // no row in the barrier
	answered        // with success
	refused
)

// The real effect of a step, whatever the saga knows of it.
const (
	never = iota
	happened
	undone
)

// Bits of place.hand: operator actions on the step.
const (
	handDone   = 1 // the operator did it by hand, or claims so
	handUndone = 2
)

// place has the world's facts about a step.
type place struct {
	row    [2]uint8 // the barrier's row, by operation
	epoch  [2]uint8 // the row's epoch
	reply  [2]uint8 // the row's, an index of step.replies
	sent   [2]uint8 // how many commands were sent
	inbox  [2]uint8 // the epochs of the answered commands, as bits
	effect uint8
	hand   uint8
}

// The queues of a world: the start of the saga, the events that came before it, and for each hop commands and events.
const (
	startQueue = iota
	stashQueue
	hopQueues
)

func commandsOf(hop int) int { return hopQueues + 2*hop }
func eventsOf(hop int) int   { return hopQueues + 2*hop + 1 }

// world is the whole state of the model. Messages are indexes of explorer.commands and explorer.events.
type world struct {
	saga       uint32 // index of explorer.sagas
	published  uint32 // the awaited events that have come, as bits
	duplicates uint8
	buttons    uint8
	places     []place
	queues     [][]uint16
	dead       []uint16 // commands, sorted
}

func (w *world) copyFrom(v *world) {
	w.saga, w.published, w.duplicates, w.buttons = v.saga, v.published, v.duplicates, v.buttons
	w.places = append(w.places[:0], v.places...)
	w.dead = append(w.dead[:0], v.dead...)
	for len(w.queues) < len(v.queues) {
		w.queues = append(w.queues, nil)
	}
	for i, q := range v.queues {
		w.queues[i] = append(w.queues[i][:0], q...)
	}
}

// put appends to a queue. An unordered queue is sorted, so that equal worlds have equal bytes.
func (w *world) put(queue int, message uint16, unordered bool) {
	w.queues[queue] = append(w.queues[queue], message)
	if unordered {
		slices.Sort(w.queues[queue])
	}
}

func (w *world) take(queue, at int) { w.queues[queue] = slices.Delete(w.queues[queue], at, at+1) }

func (w *world) bury(command uint16) {
	at, _ := slices.BinarySearch(w.dead, command)
	w.dead = slices.Insert(w.dead, at, command)
}

// encode appends the world to b: equal worlds give equal bytes. A queue is encoded as its length and its messages.
func (w *world) encode(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, w.saga)
	b = append(b, w.duplicates|w.buttons<<4)
	b = binary.AppendUvarint(b, uint64(w.published))
	for i := range w.places {
		p := &w.places[i]
		b = append(b, p.row[0]|p.row[1]<<2|p.effect<<4|p.hand<<6)
		if p.sent[0]|p.sent[1]|p.row[0]|p.row[1] == 0 {
			b = append(b, 0)
			continue
		}
		b = append(b, 1+p.sent[0]|p.sent[1]<<4, p.epoch[0]|p.epoch[1]<<4, p.reply[0], p.reply[1], p.inbox[0], p.inbox[1])
	}
	for _, q := range w.queues {
		b = encodeMessages(b, q)
	}
	return encodeMessages(b, w.dead)
}

func encodeMessages(b []byte, q []uint16) []byte {
	b = append(b, byte(len(q)))
	for _, m := range q {
		b = binary.AppendUvarint(b, uint64(m))
	}
	return b
}

// decode is the inverse of encode, into a world that has the places and queues of its model.
func (w *world) decode(b []byte) {
	w.saga = binary.LittleEndian.Uint32(b)
	w.duplicates, w.buttons = b[4]&15, b[4]>>4
	b = b[5:]
	published, n := binary.Uvarint(b)
	w.published, b = uint32(published), b[n:]
	for i := range w.places {
		c := b[0]
		p := place{row: [2]uint8{c & 3, c >> 2 & 3}, effect: c >> 4 & 3, hand: c >> 6}
		if b[1] == 0 {
			w.places[i], b = p, b[2:]
			continue
		}
		sent := b[1] - 1
		p.sent = [2]uint8{sent & 15, sent >> 4}
		p.epoch = [2]uint8{b[2] & 15, b[2] >> 4}
		p.reply, p.inbox = [2]uint8{b[3], b[4]}, [2]uint8{b[5], b[6]}
		w.places[i], b = p, b[7:]
	}
	for i := range w.queues {
		w.queues[i], b = decodeMessages(w.queues[i], b)
	}
	w.dead, _ = decodeMessages(w.dead, b)
}

func decodeMessages(q []uint16, b []byte) (_ []uint16, rest []byte) {
	n := int(b[0])
	q, b = q[:0], b[1:]
	for range n {
		m, size := binary.Uvarint(b)
		q, b = append(q, uint16(m)), b[size:]
	}
	return q, b
}
