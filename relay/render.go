package relay

import (
	"bytes"
	"encoding/hex"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
)

// A renderer makes records of rows. It gives the same result as outboxrow.Row.Message and kafka.Record, but allocates nothing for nearly
// all rows: rows whose headers are a flat object of plain strings. A test compares the two results. Records are valid until reset.
type renderer struct {
	defaults outboxrow.Defaults
	source   []byte
	types    map[string][]byte // content types by topic

	records []kgo.Record
	headers []kgo.RecordHeader
	bytes   []byte
}

func newRenderer(d outboxrow.Defaults) *renderer {
	return &renderer{defaults: d, source: []byte(d.Source), types: make(map[string][]byte)}
}

// reset makes all earlier records invalid, and makes room for up to n new ones.
func (r *renderer) reset(n int) {
	clear(r.records)
	clear(r.headers)
	if cap(r.records) < n {
		r.records = make([]kgo.Record, 0, n)
	}
	r.records, r.headers, r.bytes = r.records[:0], r.headers[:0], r.bytes[:0]
}

// kafkaRecord makes the record of a row. It returns an error if the row's headers cannot be read.
func (r *renderer) kafkaRecord(row *outboxrow.Row) (*kgo.Record, error) {
	var set attributes
	if row.RawHeaders != nil || !set.read(row.Headers) {
		m, err := row.Message(r.defaults)
		if err != nil {
			return nil, err
		}
		return kafka.Record(m), nil
	}
	if len(r.records) == cap(r.records) {
		r.records = make([]kgo.Record, 0, max(64, 2*cap(r.records))) // records in use stay in the old slice
	}
	r.records = append(r.records, kgo.Record{Topic: row.Topic, Key: row.OrderKey(), Value: row.Payload})
	record := &r.records[len(r.records)-1]
	record.Headers = r.headersOf(row, &set, record.Key)
	return record, nil
}

var specVersion = []byte("1.0")

// headersOf makes the record's headers from the row's columns and from set, which holds the row's own headers.
func (r *renderer) headersOf(row *outboxrow.Row, set *attributes, key []byte) []kgo.RecordHeader {
	id := r.id(row.ID)
	set.values[attributeID] = id
	set.values[attributeType] = r.text(row.Type)
	set.fill(attributeSource, r.source)
	if len(key) > 0 && isText(key) {
		set.fill(attributeSubject, key)
	}
	set.fill(attributeCorrelation, id)
	if row.Payload != nil {
		set.fill(attributeContentType, r.contentType(row.Topic))
	}
	at := row.CreatedAt
	if !set.time.IsZero() {
		at = set.time
	}
	start := len(r.headers)
	r.headers = append(r.headers, kgo.RecordHeader{Key: ce.HeaderSpecVersion, Value: specVersion})
	for n, value := range set.values {
		if len(value) > 0 {
			r.headers = append(r.headers, kgo.RecordHeader{Key: attributeNames[n], Value: value})
		}
	}
	if !at.IsZero() {
		from := len(r.bytes)
		r.bytes = at.UTC().AppendFormat(r.bytes, time.RFC3339Nano)
		r.headers = append(r.headers, kgo.RecordHeader{Key: ce.HeaderTime, Value: r.bytes[from:len(r.bytes):len(r.bytes)]})
	}
	for _, h := range set.extra[:set.extras] {
		r.headers = append(r.headers, kgo.RecordHeader{Key: string(h.key), Value: h.value})
	}
	return r.headers[start:len(r.headers):len(r.headers)]
}

func (r *renderer) id(id uuid.UUID) []byte {
	from := len(r.bytes)
	r.bytes = slices.Grow(r.bytes, 36)
	b := r.bytes[from : from+36]
	hex.Encode(b, id[:4])
	b[8] = '-'
	hex.Encode(b[9:], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:], id[10:])
	r.bytes = r.bytes[:from+36]
	return b[:36:36]
}

func (r *renderer) text(s string) []byte {
	from := len(r.bytes)
	r.bytes = append(r.bytes, s...)
	return r.bytes[from:len(r.bytes):len(r.bytes)]
}

func (r *renderer) contentType(topic string) []byte {
	known, ok := r.types[topic]
	if !ok {
		text := envelope.JSON
		if r.defaults.ContentType != nil {
			text = r.defaults.ContentType(topic)
		}
		known = []byte(text)
		if len(topic) > maxCachedText {
			return known
		}
		if len(r.types) >= 10_000 {
			clear(r.types)
		}
		r.types[topic] = known
	}
	return known
}

// isText reports whether b is valid UTF-8 and has no zero byte.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// The indexes of a record's attributes, in the order of its headers. The attribute time has no index.
const (
	attributeID = iota
	attributeSource
	attributeType
	attributeSubject
	attributeContentType
	attributeCorrelation
	attributeCausation
	attributeOutcome
	attributeIdempotencyKey
	attributeSagaID
	attributeSagaStep
	attributeSagaOperation
	attributeTraceParent
	attributeTraceState
	attributeCount
)

var attributeNames = [attributeCount]string{
	ce.HeaderID, ce.HeaderSource, ce.HeaderType, ce.HeaderSubject, ce.HeaderContentType,
	ce.HeaderCorrelationID, ce.HeaderCausationID, ce.HeaderOutcome, ce.HeaderIdempotencyKey,
	ce.HeaderSagaID, ce.HeaderSagaStep, ce.HeaderSagaOperation, ce.HeaderTraceParent,
	ce.HeaderTraceState,
}

// attributes holds the parsed column headers of a row. values has the CloudEvents attributes, by index. time has ce_time, and extra has all
// other headers.
type attributes struct {
	values [attributeCount][]byte
	time   time.Time
	extra  [maxExtra]pair
	extras int
}

type pair struct{ key, value []byte }

const (
	// Headers above these limits go through outboxrow.Row.Message, which checks their size.
	maxExtra      = 8       // number of extra headers
	maxPlain      = 4 << 10 // bytes of all headers
	maxPlainValue = 1024    // bytes of one value
)

// fill sets attribute n to value if the attribute has no value yet.
func (a *attributes) fill(n int, value []byte) {
	if len(a.values[n]) == 0 {
		a.values[n] = value
	}
}

// read parses headers that are a flat object of strings without escapes, in the text form of jsonb. It returns false for any other form,
// and for values that outboxrow.Row.Message must check.
func (a *attributes) read(headers []byte) bool {
	if len(headers) == 0 || string(headers) == "{}" {
		return true
	}
	if len(headers) > maxPlain || headers[0] != '{' {
		return false
	}
	for rest := headers[1:]; ; {
		key, more := quoted(rest)
		if len(key) == 0 || !bytes.HasPrefix(more, colon) {
			return false
		}
		value, more := quoted(more[len(colon):])
		if len(value) == 0 || len(value) > maxPlainValue || !a.set(key, value) {
			return false
		}
		switch {
		case bytes.HasPrefix(more, comma):
			rest = more[len(comma):]
		case len(more) == 1 && more[0] == '}':
			a.sort()
			return true
		default:
			return false
		}
	}
}

var colon, comma = []byte(": "), []byte(", ")

// quoted reads a JSON string without escapes, and returns it with the bytes that follow. It returns nil if b does not begin with such a
// string.
func quoted(b []byte) (text, rest []byte) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil
	}
	ascii := true
	for n, c := range b[1:] {
		switch {
		case c == '"':
			text = b[1 : n+1 : n+1]
			if !ascii && !utf8.Valid(text) {
				return nil, nil
			}
			return text, b[n+2:]
		case c == '\\' || c < ' ':
			return nil, nil
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, nil
}

// set sets the attribute or the extra header that key names. It returns false for a value that outboxrow.Row.Message must check.
func (a *attributes) set(key, value []byte) bool {
	if string(key) == ce.HeaderSpecVersion {
		return string(value) == string(specVersion)
	}
	if string(key) == ce.HeaderTime {
		t, err := time.Parse(time.RFC3339Nano, string(value))
		a.time = t
		return err == nil && !t.IsZero()
	}
	for n, name := range attributeNames {
		if name == string(key) {
			a.values[n] = value
			return n != attributeOutcome || envelope.Outcome(value).Valid()
		}
	}
	if a.extras == maxExtra {
		return false
	}
	a.extra[a.extras] = pair{key, value}
	a.extras++
	return true
}

// sort orders the extra headers by name, as outboxrow.Row.Message does.
func (a *attributes) sort() {
	slices.SortFunc(a.extra[:a.extras], func(x, y pair) int { return bytes.Compare(x.key, y.key) })
}
