package watch

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
)

const (
	maxText = 255 // bytes of a key, an id or a type; longer ones, and ones that are not text, are stored as hashes
	ring    = 16
	day     = 24 * time.Hour
)

// A row holds the stored part of a record. Its byte slices point into the record.
type row struct {
	at, written            time.Time
	typ                    []byte
	outcome                int16
	id, correlation, cause uuid.UUID
	caused                 bool
	idText, flowText       []byte // nil if they are UUIDs
	key                    []byte
}

// read parses the headers. For headers as Troupe writes them it does not allocate.
func (o *row) read(r *kgo.Record) {
	*o = row{at: r.Timestamp, written: r.Timestamp, key: textOf(r.Key)}
	var id, flow, cause, original, written []byte
	for _, h := range r.Headers {
		switch h.Key {
		case ce.HeaderID:
			id = h.Value
		case ce.HeaderType:
			o.typ = textOf(h.Value)
		case ce.HeaderCorrelationID:
			flow = h.Value
		case ce.HeaderCausationID:
			cause = h.Value
		case ce.HeaderOutcome:
			o.outcome = outcomeOf(h.Value)
		case ce.HeaderTime:
			written = h.Value
		case deadletter.HeaderMessageID:
			original = h.Value
		}
	}
	if len(original) > 0 { // a dead letter follows from the message that it is a copy of
		cause, id = original, append(append([]byte(nil), "dlq "...), original...)
	}
	if len(written) > 0 {
		if t, err := time.Parse(time.RFC3339Nano, string(written)); err == nil && t.Year() > 1970 && t.UTC().Year() < 10000 {
			o.written = t
		}
	}
	if len(id) == 0 { // no CloudEvent: it is identified by its topic, partition and offset
		id = binary.BigEndian.AppendUint64(append([]byte(r.Topic), byte(r.Partition>>8), byte(r.Partition)), uint64(r.Offset))
	}
	o.id, o.idText = identity(id)
	if len(flow) == 0 {
		o.correlation, o.flowText = o.id, o.idText
	} else {
		o.correlation, o.flowText = identity(flow)
	}
	if len(cause) > 0 {
		o.cause, _ = identity(cause)
		o.caused = true
	}
}

func outcomeOf(text []byte) int16 {
	switch envelope.Outcome(text) {
	case envelope.Success:
		return 1
	case envelope.Failure:
		return 2
	case envelope.Exhausted:
		return 3
	}
	return 0
}

// outcomes is the inverse of outcomeOf.
var outcomes = [...]envelope.Outcome{"", envelope.Success, envelope.Failure, envelope.Exhausted}

// identity returns a text as a UUID. If the text is none, the UUID is its hash, and the text is returned too.
func identity(text []byte) (uuid.UUID, []byte) {
	if len(text) == 36 {
		if id, err := uuid.ParseBytes(text); err == nil && lower(text) {
			return id, nil
		}
	}
	sum := sha256.Sum256(text)
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8: a custom UUID
	return id, textOf(text)
}

// lower reports whether a UUID is written in lower case, as Postgres returns it.
func lower(text []byte) bool {
	for _, c := range text {
		if c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}

// textOf returns b if a text column can hold it, and else its hash.
func textOf(b []byte) []byte {
	if len(b) <= maxText && utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		return b
	}
	sum := sha256.Sum256(b)
	return hex.AppendEncode([]byte("sha256:"), sum[:])
}

// copyHeader and copyEnd frame Postgres's binary COPY format (the manual, "COPY", Binary Format).
var copyHeader = append([]byte("PGCOPY\n\xff\r\n\x00"), make([]byte, 8)...)

var copyEnd = []byte{0xff, 0xff}

// postgresEpoch is the time from which Postgres counts microseconds.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// place is the position of a row's record, with the numbers of its names.
type place struct {
	slot                         int16
	flow, topic, partition, kind int32 // kind is the number of the type
	offset                       int64
}

// appendCopy writes a row with the columns in the order of copyMessages.
func (o *row) appendCopy(b []byte, p place) []byte {
	b = binary.BigEndian.AppendUint16(b, 15)
	b = append16(b, p.slot)
	b = append32(b, p.flow)
	b = append32(b, p.topic)
	b = append32(b, p.partition)
	b = append64(b, p.offset)
	b = append64(b, o.at.UnixMicro()-postgresEpoch)
	b = append64(b, o.written.UnixMicro()-postgresEpoch)
	b = append32(b, p.kind)
	b = append16(b, o.outcome)
	b = appendBytes(b, o.id[:])
	b = appendBytes(b, o.correlation[:])
	if o.caused {
		b = appendBytes(b, o.cause[:])
	} else {
		b = appendBytes(b, nil)
	}
	if o.key == nil {
		b = binary.BigEndian.AppendUint32(b, 0)
	} else {
		b = appendBytes(b, o.key)
	}
	b = appendBytes(b, o.idText)
	return appendBytes(b, o.flowText)
}

func append16(b []byte, n int16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(b, 2), uint16(n))
}

func append32(b []byte, n int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(n))
}

func append64(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(n))
}

// appendBytes writes nil as NULL.
func appendBytes(b, value []byte) []byte {
	if value == nil {
		return binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}
