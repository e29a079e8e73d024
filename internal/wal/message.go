package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Kind is the type of an Event.
type Kind byte

// The kinds of events.
const (
	Begin     Kind = iota + 1 // a committed transaction begins
	Commit                    // it ends: all its events have been returned
	Insert                    // a row
	Message                   // of pg_logical_emit_message
	Keepalive                 // of the server: there are no more events up to LSN
	Update                    // a row was changed: only its table is known
	Skipped                   // a part of a long message of pg_logical_emit_message was received, and discarded
)

// An Event is an event of the stream. Its slices are valid until the next event is read.
type Event struct {
	Kind Kind
	// LSN is, by Kind: of a Begin, the transaction's commit record; of a Commit, the end of that record; of a Keepalive, the LSN up
	// to which the server has read the log; of a Message, its own LSN.
	LSN LSN
	XID uint32    // Begin
	At  time.Time // Begin: commit time

	Relation *Relation // Insert, Update; valid as long as the stream
	Tuple    Tuple     // Insert

	Prefix  string // Message
	Content []byte // Message

	ReplyNow bool // Keepalive: the server wants a report at once
}

// A Relation is the definition of a table at the time when a row was written.
type Relation struct {
	ID        uint32
	Namespace string
	Name      string
	Columns   []Column
}

// A Column is a column of a relation.
type Column struct {
	Name     string
	Type     uint32 // its oid
	Modifier int32  // of the type; -1: none
}

// Limits of a message: data that exceeds them is no message.
const (
	maxColumns = 1600 // Postgres' own
	maxName    = 256  // NAMEDATALEN is 64 in a standard build
)

// Value formats.
const (
	Null      = 'n'
	Unchanged = 'u'
	Text      = 't'
	Binary    = 'b'
)

// A Tuple holds the values of one row, in the order of the relation's columns.
type Tuple struct {
	left int
	data []byte
}

// Map returns a tuple with the values that change returns. change is called with the index of each value that is neither null
// nor unchanged.
func (t Tuple) Map(change func(n int, value []byte) ([]byte, error)) (Tuple, error) {
	changed := Tuple{left: t.left, data: make([]byte, 0, len(t.data))}
	for n := range changed.left {
		format, value := t.Next()
		changed.data = append(changed.data, format)
		if format == Null || format == Unchanged {
			continue
		}
		value, err := change(n, value)
		if err != nil {
			return Tuple{}, err
		}
		changed.data = binary.BigEndian.AppendUint32(changed.data, uint32(len(value)))
		changed.data = append(changed.data, value...)
	}
	return changed, nil
}

// Next returns the format of the next value, and its bytes if it has any. The tuple was validated when it was read.
func (t *Tuple) Next() (format byte, value []byte) {
	t.left--
	format = t.data[0]
	if format == Null || format == Unchanged {
		t.data = t.data[1:]
		return format, nil
	}
	n := binary.BigEndian.Uint32(t.data[1:])
	value = t.data[5 : 5+n : 5+n]
	t.data = t.data[5+n:]
	return format, value
}

// A Decoder decodes messages of pgoutput into events. It stores the stream's relations, so it can be used for one stream only, by
// one goroutine.
type Decoder struct {
	relations map[uint32]*Relation
	prefix    string // the last one, so that a heartbeat does not allocate a string
}

var errShort = errors.New("message ends too soon")

// reader reads the fields of a message. After an error it returns zeros.
type reader struct {
	data []byte
	err  error
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.data) {
		r.err, r.data = errShort, nil
		return nil
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// text reads a string that ends with a zero byte.
func (r *reader) text() []byte {
	for n, b := range r.data {
		if n > maxName {
			break
		}
		if b == 0 {
			text := r.data[:n]
			r.data = r.data[n+1:]
			return text
		}
	}
	r.err, r.data = errShort, nil
	return nil
}

// epoch is the zero of Postgres' microseconds.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Time converts Postgres' microseconds since 2000; it returns the zero time for infinity, and for years that RFC 3339 cannot
// express.
func Time(micros int64) time.Time {
	if micros < firstMicros || micros > lastMicros {
		return time.Time{}
	}
	return time.UnixMicro(micros + epoch.UnixMicro()).UTC()
}

var (
	firstMicros = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - epoch.UnixMicro()
	lastMicros  = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - epoch.UnixMicro() - 1
)

// Decode decodes one message of pgoutput. known is false for messages that are skipped: deletes, origins, types, truncations, messages of
// pg_logical_emit_message with a long prefix, and messages that a later protocol may add.
func (d *Decoder) Decode(data []byte) (e Event, known bool, err error) {
	if len(data) == 0 {
		return e, false, fmt.Errorf("wal: %w", errShort)
	}
	r := reader{data: data[1:]}
	switch kind := data[0]; kind {
	case 'B':
		e = Event{Kind: Begin, LSN: LSN(r.uint64()), At: Time(int64(r.uint64())), XID: r.uint32()}
	case 'C':
		r.byte()   // flags
		r.uint64() // the commit record
		e = Event{Kind: Commit, LSN: LSN(r.uint64())}
		r.uint64() // commit time
	case 'I':
		e, r.err = d.insert(&r)
	case 'U':
		e = Event{Kind: Update, Relation: d.relations[r.uint32()]}
		if e.Relation == nil {
			return e, false, wrap(data[0], r.err)
		}
	case message:
		r.byte() // flags
		e = Event{Kind: Message, LSN: LSN(r.uint64())}
		if bytes.IndexByte(r.data, 0) > maxName { // not one of Troupe: Postgres does not limit a prefix
			return e, false, r.err
		}
		if prefix := r.text(); string(prefix) != d.prefix {
			d.prefix = string(prefix)
		}
		e.Prefix = d.prefix
		e.Content = r.take(int(r.uint32()))
	case 'R':
		return e, false, wrap(kind, d.relation(&r))
	default:
		return e, false, nil
	}
	return e, r.err == nil, wrap(data[0], r.err)
}

func wrap(kind byte, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("wal: pgoutput message %q: %w", kind, err)
}

func (d *Decoder) insert(r *reader) (Event, error) {
	id := r.uint32()
	relation := d.relations[id]
	switch {
	case r.err != nil:
		return Event{}, r.err
	case relation == nil:
		return Event{}, fmt.Errorf("relation %d was not described", id)
	case r.byte() != 'N':
		return Event{}, errors.New("no new tuple")
	}
	n := int(r.uint16())
	if n != len(relation.Columns) {
		return Event{}, fmt.Errorf("%d values for %d columns of %s", n, len(relation.Columns), relation.Name)
	}
	tuple := Tuple{left: n, data: r.data}
	for range n {
		switch format := r.byte(); format {
		case Null, Unchanged:
		case Text, Binary:
			r.take(int(r.uint32()))
		default:
			if r.err == nil {
				r.err = fmt.Errorf("value format %q", format)
			}
		}
		if r.err != nil {
			return Event{}, r.err
		}
	}
	return Event{Kind: Insert, Relation: relation, Tuple: tuple}, nil
}

func (d *Decoder) relation(r *reader) error {
	rel := &Relation{ID: r.uint32(), Namespace: string(r.text()), Name: string(r.text())}
	r.byte() // replica identity
	n := int(r.uint16())
	if n > maxColumns {
		return fmt.Errorf("%d columns", n)
	}
	for range n {
		r.byte() // flags
		c := Column{Name: string(r.text()), Type: r.uint32(), Modifier: int32(r.uint32())}
		if r.err != nil {
			return r.err
		}
		rel.Columns = append(rel.Columns, c)
	}
	if r.err != nil {
		return r.err
	}
	if rel.Namespace == "" { // pg_catalog is sent as an empty name
		rel.Namespace = "pg_catalog"
	}
	if d.relations == nil {
		d.relations = make(map[uint32]*Relation)
	}
	d.relations[rel.ID] = rel
	return nil
}
