package mapping

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
)

// A build holds one message while it is made, and the first error.
type build struct {
	t     *Table
	row   []Value
	m     *Message
	extra []envelope.Header
	json  bool // the payload is JSON
	err   error
}

func (b *build) fail(place int, err error) {
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("column %s: %w", b.t.readers[place].Name, err)
	}
}

func (b *build) null(place int) bool { return b.row[place].Data == nil }

// text returns a column's text, "" for null.
func (b *build) text(place int) string {
	if place < 0 || b.null(place) {
		return ""
	}
	text, _, err := b.t.readers[place].scalar(b.row[place])
	b.fail(place, err)
	return string(text)
}

// label returns the text of a column that becomes an attribute and may not be missing.
func (b *build) label(place int) string {
	text := b.text(place)
	switch {
	case b.null(place):
		b.fail(place, errNull)
	case text == "":
		b.fail(place, errors.New("is empty"))
	case len(text) > maxAttribute:
		b.fail(place, fmt.Errorf("is of %d bytes, the limit is %d", len(text), maxAttribute))
	}
	return text
}

// number returns an integer's value, 0 for null.
func (b *build) number(place int) int64 {
	if place < 0 || b.null(place) {
		return 0
	}
	n, err := b.t.readers[place].int(b.row[place])
	b.fail(place, err)
	return n
}

// identify reads the parts that must also be known of a row that cannot be published.
func (b *build) identify() {
	t, m := b.t, b.m
	m.Position = b.number(t.position)
	if t.position >= 0 && b.null(t.position) {
		b.fail(t.position, errNull)
	}
	if t.xid >= 0 && !b.null(t.xid) {
		xid, err := t.readers[t.xid].xid(b.row[t.xid])
		b.fail(t.xid, err)
		m.XID = xid
	}
	m.Key = b.formatted(t.key, t.m.cfg.KeyFormat)
	if b.null(t.id) {
		b.fail(t.id, errNoID)
	}
	m.EventID = b.label(t.id)
	if by := b.label(t.route); by != "" {
		m.Topic = t.topic(by)
	}
	if m.Topic == "" && b.err == nil {
		b.err = errors.New("its topic is empty: see route.topic.replacement")
	}
}

// formatted returns a key, or a payload without an envelope.
func (b *build) formatted(place int, format string) []byte {
	if format == JSON {
		return b.member(nil, place)
	}
	if b.null(place) {
		return nil
	}
	raw, err := b.t.readers[place].bytes(b.row[place])
	b.fail(place, err)
	return notNil(raw)
}

// member appends a column as JSON.
func (b *build) member(to []byte, place int) []byte {
	if b.null(place) {
		return append(to, "null"...)
	}
	text, bare, err := b.t.readers[place].scalar(b.row[place])
	b.fail(place, err)
	if bare {
		return append(to, text...)
	}
	return quote(to, text)
}

func (b *build) body() {
	t, cfg := b.t, &b.t.m.cfg
	var document []byte
	expanded := false
	if !b.null(t.payload) {
		raw, err := t.readers[t.payload].bytes(b.row[t.payload])
		b.fail(t.payload, err)
		isText := t.readers[t.payload].kind != kindBytes // bytes that are spaces may be meant
		if cfg.TombstoneOnEmpty && isText && len(bytes.TrimFunc(raw, func(r rune) bool { return r <= ' ' })) == 0 {
			return
		}
		if cfg.ExpandJSON && isText {
			document, expanded = t.m.expand(raw)
		}
	} else if cfg.TombstoneOnEmpty {
		return
	}
	b.json = expanded || t.m.enveloped || cfg.PayloadFormat == JSON || t.readers[t.payload].kind != kindBytes
	switch {
	case t.m.enveloped:
		b.m.Payload = b.envelope(document)
	case expanded:
		b.m.Payload = document
	default:
		b.m.Payload = b.formatted(t.payload, cfg.PayloadFormat)
	}
}

func (b *build) envelope(document []byte) []byte {
	out := make([]byte, 0, 64+len(b.row[b.t.payload].Data)+len(b.row[b.t.payload].Data)/8)
	out = append(out, `{"`+envelopePayload+`":`...)
	if document != nil {
		out = append(out, document...)
	} else {
		out = b.member(out, b.t.payload)
	}
	for _, p := range b.t.placed {
		if p.where == inEnvelope {
			out = b.member(append(out, p.name...), p.place)
		}
	}
	return append(out, '}')
}

func (b *build) head() {
	t, m := b.t, b.m
	if t.at >= 0 && !b.null(t.at) {
		at, infinite, err := t.readers[t.at].time(b.row[t.at])
		if infinite != "" {
			err = fmt.Errorf("is %s, which is no time of a message", infinite)
		}
		b.fail(t.at, err)
		m.Timestamp = at
	}
	b.trace()
	if t.m.cfg.Headers == EventRouter {
		b.plain()
	} else {
		b.attributes()
	}
}

// placedHeaders appends the headers of additional columns, and reads the partition.
func (b *build) placedHeaders() {
	for _, p := range b.t.placed {
		switch p.where {
		case inHeader:
			h := envelope.Header{Key: p.alias}
			if !b.null(p.place) {
				text, _, err := b.t.readers[p.place].scalar(b.row[p.place])
				b.fail(p.place, err)
				h.Value = notNil(text)
			}
			b.extra = append(b.extra, h)
		case inPartition:
			if b.null(p.place) {
				b.m.Partition = ByKey
				continue
			}
			n := b.number(p.place)
			if n < 0 || n > math.MaxInt32 {
				b.fail(p.place, fmt.Errorf("is %d, which is no partition", n))
			}
			b.m.Partition = int32(n)
		}
	}
}

// plain sets the headers of Debezium's profile.
func (b *build) plain() {
	b.extra = append(make([]envelope.Header, 0, 1+len(b.t.placed)), envelope.Header{Key: "id", Value: []byte(b.m.EventID)})
	b.placedHeaders()
	if b.err == nil {
		b.err = envelope.CheckHeaders(b.extra)
	}
	b.m.Extra = b.extra
	if b.m.Payload != nil {
		b.m.ContentType = b.t.m.cfg.ContentType
	}
}

// attributes sets the attributes of Troupe's profile. A column placed as one of its headers sets that attribute.
func (b *build) attributes() {
	t, m := b.t, b.m
	b.placedHeaders()
	if t.version >= 0 && !b.null(t.version) {
		b.extra = append(b.extra, envelope.Header{Key: schemaVersion, Value: []byte(b.text(t.version))})
	}
	if len(b.extra) > 0 && b.err == nil {
		b.err = m.SetHeaders(b.extra)
	}
	m.ID = m.EventID
	if m.Type == "" {
		m.Type = b.label(t.typ)
	}
	fill(&m.Source, t.m.cfg.Source)
	fill(&m.CorrelationID, m.ID)
	if m.Time.IsZero() {
		m.Time = m.Timestamp
	}
	if m.Subject == "" && len(m.Key) <= maxAttribute && utf8.Valid(m.Key) {
		m.Subject = string(m.Key)
	}
	if m.ContentType == "" && m.Payload != nil {
		switch {
		case t.m.cfg.ContentType != "":
			m.ContentType = t.m.cfg.ContentType
		case b.json:
			m.ContentType = envelope.JSON
		default:
			m.ContentType = octetStream
		}
	}
}

func (b *build) trace() {
	text := b.text(b.t.span)
	if text == "" {
		return
	}
	context := properties(text)
	if parent := context[ce.HeaderTraceParent]; isTraceParent(parent) {
		b.m.TraceParent = parent
		if state := context[ce.HeaderTraceState]; len(state) <= maxAttribute {
			b.m.TraceState = state
		}
	}
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// quote appends text as a JSON string, with all characters from space upwards unescaped, except quotes and backslashes.
func quote(to, text []byte) []byte {
	const hex = "0123456789abcdef"
	to = append(to, '"')
	from := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		to = append(to, text[from:i]...)
		from = i + 1
		if at := strings.IndexByte("\"\\\b\f\n\r\t", c); at >= 0 {
			to = append(to, '\\', `"\bfnrt`[at])
		} else {
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
	}
	return append(append(to, text[from:]...), '"')
}
