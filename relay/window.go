package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/internal/wal"
)

// A window holds rows that a source has read and the publisher has not settled yet. A stream's window holds rows in the order of their
// commits, and the LSN upTo: the rows of the log before upTo are in this window or in an earlier one. The memory of the rows belongs to the
// window, and is used again for its next rows.
type window struct {
	items []item
	bytes []byte    // memory of the rows' values
	long  int       // bytes of topics and types that are too long to be cached, see maxCachedText
	upTo  wal.LSN   // the rows of the log before it are in this window or an earlier one; 0: no transaction has ended since this window was begun
	whole int       // number of items before upTo; the other items are of a transaction that is not complete yet
	end   commitEnd // end of the last transaction with rows that ended in this window
	begun time.Time // when its first row was read

	discardsSettled bool // its discarded rows are settled, see stream.skipDiscarded

	commit wal.LSN // commit LSN of the transaction whose rows are added
}

// A commitEnd is the end of a transaction in the log, with the time of its commit. The zero value is no transaction.
type commitEnd struct {
	lsn wal.LSN
	at  time.Time
}

// The limits of a stream's window. A stream has two windows: one is filled while the rows of the other are published. They are the largest
// part of a relay's memory, and larger windows were not faster.
const (
	windowRows  = 2000
	windowBytes = 3 << 19
)

func (w *window) full() bool { return len(w.items) >= windowRows || w.size() >= windowBytes }

// size returns the bytes of memory that the values of the rows take.
func (w *window) size() int { return len(w.bytes) + w.long }

// clear empties the window.
func (w *window) clear() {
	clear(w.items)
	w.items, w.bytes, w.long, w.upTo, w.whole, w.end = w.items[:0], w.bytes[:0], 0, 0, 0, commitEnd{}
	w.discardsSettled = false
	if cap(w.bytes) > 2*windowBytes { // it held a row of many megabytes
		w.bytes = nil
	}
}

// A field is a column of the outbox.
type field byte

const (
	other field = iota
	position
	xid
	id
	topic
	key
	keyBytes
	messageType
	headers
	rawHeaders
	payload
	createdAt
)

var fields = map[string]field{
	"position": position, "xid": xid, "id": id, "topic": topic, "key": key, "key_bytes": keyBytes, "type": messageType,
	"headers": headers, "raw_headers": rawHeaders, "payload": payload, "created_at": createdAt,
}

// A layout has the field of each column of a relation. It has other for a column that the relay does not know, so that a column may be
// added while a relay runs.
type layout []field

// layoutOf returns the layout of a relation. It returns an error if a column of the outbox is missing.
func layoutOf(r *wal.Relation) (layout, error) {
	l := make(layout, len(r.Columns))
	found := 0
	for n, c := range r.Columns {
		if f, ours := fields[c.Name]; ours {
			l[n] = f
			found++
		}
	}
	if found < len(fields) {
		return nil, fmt.Errorf("%s.%s lacks columns of an outbox: %d of %d are there", r.Namespace, r.Name, found, len(fields))
	}
	return l, nil
}

// words caches strings that repeat: topics and types. It does not cache a string that is longer than maxCachedText.
type words map[string]string

// text returns b as a string, and caches it.
func (w words) text(b []byte) string {
	if len(b) > maxCachedText {
		return string(b)
	}
	if known, ok := w[string(b)]; ok {
		return known
	}
	if len(w) >= 10_000 { // bounds the cache; with more distinct strings it starts over
		clear(w)
	}
	text := string(b)
	w[text] = text
	return text
}

// add appends a row of the log. It returns an error, and appends nothing, if the row cannot be read.
func (w *window) add(l layout, tuple wal.Tuple, texts words) error {
	start := len(w.bytes)
	w.push(item{})
	i := &w.items[len(w.items)-1]
	if err := w.fill(i, l, tuple, texts); err != nil {
		w.items, w.bytes = w.items[:len(w.items)-1], w.bytes[:start]
		return err
	}
	i.key = i.row.KeyBytes
	return nil
}

// fill sets the fields of i to the values of the tuple.
func (w *window) fill(i *item, l layout, tuple wal.Tuple, texts words) error {
	for _, f := range l {
		format, value := tuple.Next()
		if format == wal.Null || format == wal.Unchanged || f == other {
			continue
		}
		if format == wal.Text {
			var err error
			if value, err = binaryOf(f, value); err != nil {
				return err
			}
		}
		if err := w.set(i, f, value, texts); err != nil {
			return err
		}
	}
	return nil
}

// push appends an item, with the commit LSN of the transaction that is being read.
func (w *window) push(i item) {
	if len(w.items) == 0 {
		w.begun = time.Now()
	}
	i.commit = w.commit
	w.items = append(roomFor(w.items, 1, windowRows), i)
}

// set sets a field of a row to a value in binary format. It copies the value.
func (w *window) set(i *item, f field, value []byte, texts words) error {
	switch f {
	case position, createdAt:
		if len(value) != 8 {
			return fmt.Errorf("a number of %d bytes", len(value))
		}
		n := int64(binary.BigEndian.Uint64(value))
		if f == position {
			i.row.Position = n
		} else {
			i.row.CreatedAt = wal.Time(n)
		}
	case id:
		if len(value) != 16 {
			return fmt.Errorf("an id of %d bytes", len(value))
		}
		i.row.ID = uuid.UUID(value)
	case topic:
		i.row.Topic = w.label(value, texts)
	case messageType:
		i.row.Type = w.label(value, texts)
	case key:
		if i.row.KeyBytes == nil {
			i.row.KeyBytes = w.copyValue(value)
		}
	case keyBytes:
		i.row.KeyBytes = w.copyValue(value)
	case headers:
		if len(value) == 0 || value[0] != 1 {
			return errors.New("headers in a form of jsonb that is not known")
		}
		if text := value[1:]; string(text) != "{}" {
			i.row.Headers = w.copyValue(text)
		}
	case rawHeaders:
		i.row.RawHeaders = w.copyValue(value)
	case payload:
		i.row.Payload = w.copyValue(value)
	}
	return nil
}

// label returns a topic or a type as a string, and counts it in w.long if it is too long to be cached.
func (w *window) label(value []byte, texts words) string {
	if len(value) > maxCachedText {
		w.long += len(value)
	}
	return texts.text(value)
}

// copyValue copies a value into the window's memory, since the connection's buffer holds it only until the next read. The result is never
// nil.
func (w *window) copyValue(value []byte) []byte {
	start := len(w.bytes)
	w.bytes = append(roomFor(w.bytes, len(value), windowBytes+windowBytes/8), value...)
	if start == len(w.bytes) {
		return []byte{}
	}
	return w.bytes[start:len(w.bytes):len(w.bytes)]
}

// roomFor makes room for n more elements. It grows the slice in a few steps to the capacity whole. append would grow it in many steps, and
// leave megabytes of garbage behind.
func roomFor[T any](s []T, n, whole int) []T {
	if need := len(s) + n; need > cap(s) {
		grown := make([]T, len(s), max(min(8*cap(s), whole), need, whole/32))
		copy(grown, s)
		return grown
	}
	return s
}

// binaryOf converts a value from text format to binary format. Some servers send a column as text although binary was requested.
func binaryOf(f field, text []byte) ([]byte, error) {
	switch f {
	case position, xid:
		n, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("a number as text: %w", err)
		}
		return binary.BigEndian.AppendUint64(nil, n), nil
	case topic, key, messageType:
		return text, nil
	}
	return nil, errors.New("a value came as text")
}

// touched reports whether an item with the index from or a higher one is settled.
func (w *window) touched(from int) bool {
	for n := range w.items[from:] {
		if w.items[from+n].settled {
			return true
		}
	}
	return false
}

// left returns the unsettled items among the first most items.
func (w *window) left(most int) []*item { return unsettled(w.items[:most]) }

func unsettled(items []item) []*item {
	left := make([]*item, 0, len(items))
	for n := range items {
		if !items[n].settled {
			left = append(left, &items[n])
		}
	}
	return left
}
