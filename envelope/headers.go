package envelope

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/troupe-go/troupe/internal/ce"
)

const specVersion = "1.0"

// Limits on input from outside.
const (
	MaxHeaders     = 256      // number of headers of one message
	MaxHeaderBytes = 64 << 10 // bytes of all keys and values of one message together
	maxAttribute   = 1024     // bytes of one attribute
)

// ErrHeaders is wrapped by errors about headers that break a rule.
var ErrHeaders = errors.New("bad headers")

// attributes returns a pointer to each text attribute, in the order in which attributes are written.
func (m *Message) attributes() [14]struct {
	name  string
	value *string
} {
	return [14]struct {
		name  string
		value *string
	}{
		{ce.HeaderID, &m.ID},
		{ce.HeaderSource, &m.Source},
		{ce.HeaderType, &m.Type},
		{ce.HeaderSubject, &m.Subject},
		{ce.HeaderContentType, &m.ContentType},
		{ce.HeaderCorrelationID, &m.CorrelationID},
		{ce.HeaderCausationID, &m.CausationID},
		{ce.HeaderOutcome, (*string)(&m.Outcome)},
		{ce.HeaderIdempotencyKey, &m.IdempotencyKey},
		{ce.HeaderSagaID, &m.SagaID},
		{ce.HeaderSagaStep, &m.SagaStep},
		{ce.HeaderSagaOperation, &m.SagaOperation},
		{ce.HeaderTraceParent, &m.TraceParent},
		{ce.HeaderTraceState, &m.TraceState},
	}
}

// Headers renders the attributes that are set, then Extra in its order. A message without an ID is not a CloudEvent and gets
// no ce_specversion.
func (m Message) Headers() []Header {
	hs := make([]Header, 0, 10+len(m.Extra))
	if m.ID != "" {
		hs = append(hs, Header{ce.HeaderSpecVersion, []byte(specVersion)})
	}
	for _, a := range m.attributes() {
		if *a.value != "" {
			hs = append(hs, Header{a.name, []byte(*a.value)})
		}
	}
	if !m.Time.IsZero() {
		hs = append(hs, Header{ce.HeaderTime, m.Time.UTC().AppendFormat(nil, time.RFC3339Nano)})
	}
	return append(hs, m.Extra...)
}

// SetHeaders reads attributes from hs and puts the other headers into Extra. If an attribute is repeated, the first one is
// used and the others go to Extra. A header whose value is not valid for its attribute also goes to Extra: one that is empty,
// longer than 1,024 bytes or not UTF-8, a time that does not parse or is outside the years 0 to 9999 in UTC, an unknown outcome. No header
// is lost. m.Time is in UTC. SetHeaders fails only for more than MaxHeaders or MaxHeaderBytes, with an error that wraps ErrHeaders. The values
// in Extra are not copied.
func (m *Message) SetHeaders(hs []Header) error {
	if err := CheckHeaders(hs); err != nil {
		return err
	}
	m.Extra = nil
	attributes := m.attributes()
	var seen [len(attributes)]bool
	seenTime := false
next:
	for _, h := range hs {
		if h.Key == ce.HeaderSpecVersion && string(h.Value) == specVersion {
			continue
		}
		if h.Key == ce.HeaderTime && !seenTime {
			// JSON can have neither an offset of 24 hours, which Parse accepts, nor the year 10000.
			if t, err := time.Parse(time.RFC3339Nano, string(h.Value)); err == nil && t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 {
				m.Time, seenTime = t.UTC(), true
				continue
			}
		}
		for i, a := range attributes {
			if a.name != h.Key {
				continue
			}
			if seen[i] || len(h.Value) == 0 || len(h.Value) > maxAttribute || !utf8.Valid(h.Value) ||
				h.Key == ce.HeaderOutcome && !Outcome(h.Value).Valid() {
				break
			}
			*a.value, seen[i] = string(h.Value), true
			continue next
		}
		m.Extra = append(m.Extra, h)
	}
	return nil
}

// CheckHeaders returns an error that wraps ErrHeaders if hs exceed MaxHeaders or MaxHeaderBytes.
func CheckHeaders(hs []Header) error {
	if len(hs) > MaxHeaders {
		return fmt.Errorf("%w: %d of them, the limit is %d", ErrHeaders, len(hs), MaxHeaders)
	}
	size := 0
	for _, h := range hs {
		size += len(h.Key) + len(h.Value)
	}
	if size > MaxHeaderBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrHeaders, size, MaxHeaderBytes)
	}
	return nil
}

// MarshalHeaders encodes headers for the column raw_headers: for each header the key's length as a varint, the key, the
// value's length as a varint (-1 for nil), the value.
func MarshalHeaders(hs []Header) []byte {
	var b []byte
	for _, h := range hs {
		b = binary.AppendVarint(b, int64(len(h.Key)))
		b = append(b, h.Key...)
		if h.Value == nil {
			b = binary.AppendVarint(b, -1)
			continue
		}
		b = binary.AppendVarint(b, int64(len(h.Value)))
		b = append(b, h.Value...)
	}
	return b
}

// mostStored is the number of headers that UnmarshalHeaders decodes. A header has at least two bytes when it is stored, and 40 in memory.
const mostStored = 1 << 16

// UnmarshalHeaders decodes the result of MarshalHeaders. Stored headers may be above the limits of a message, which SetHeaders checks; of more
// than 65,536 it returns the first ones, with an error. The values are slices of b. Errors wrap ErrHeaders.
func UnmarshalHeaders(b []byte) ([]Header, error) {
	var hs []Header
	for len(b) > 0 {
		if len(hs) == mostStored {
			return hs, fmt.Errorf("%w: more than %d of them", ErrHeaders, mostStored)
		}
		key, rest, ok := cut(b)
		if !ok || key == nil {
			return nil, fmt.Errorf("%w: key of header %d is cut short", ErrHeaders, len(hs))
		}
		value, rest, ok := cut(rest)
		if !ok {
			return nil, fmt.Errorf("%w: value of header %d is cut short", ErrHeaders, len(hs))
		}
		hs, b = append(hs, Header{string(key), value}), rest
	}
	return hs, nil
}

// cut reads a length from b and returns as many bytes, and the rest. text is nil for length -1.
func cut(b []byte) (text, rest []byte, ok bool) {
	n, size := binary.Varint(b)
	switch {
	case size <= 0 || n < -1 || n > int64(len(b)-size):
		return nil, nil, false
	case n == -1:
		return nil, b[size:], true
	}
	return b[size : size+int(n) : size+int(n)], b[size+int(n):], true
}
