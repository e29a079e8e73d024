package outbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/troupe-go/troupe/envelope"
)

// Columns is what a Row is scanned from, in this order.
const Columns = "position, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at"

// A Row is one entry as it stands in the table.
type Row struct {
	Position   int64
	ID         uuid.UUID
	Topic      string
	Key        *string
	KeyBytes   []byte
	Type       string
	Headers    []byte // jsonb
	RawHeaders []byte
	Payload    []byte
	CreatedAt  time.Time // zero for infinity, and outside the years 1 to 9999
}

// Fields are the scan targets for Columns.
func (r *Row) Fields() []any {
	id := (*[16]byte)(&r.ID) // as a uuid.UUID it would go through text
	return []any{&r.Position, id, &r.Topic, &r.Key, &r.KeyBytes, &r.Type, &r.Headers, &r.RawHeaders, &r.Payload, (*finite)(&r.CreatedAt)}
}

// finite scans a timestamp; infinity and years that RFC 3339 cannot express become the zero time.
type finite time.Time

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (f *finite) ScanTimestamptz(v pgtype.Timestamptz) error {
	*f = finite{}
	if year := v.Time.UTC().Year(); v.InfinityModifier == pgtype.Finite && year >= 1 && year <= 9999 {
		*f = finite(v.Time)
	}
	return nil
}

// OrderKey is what order is kept by: the key as bytes, nil for none.
func (r *Row) OrderKey() []byte {
	if r.KeyBytes != nil {
		return r.KeyBytes
	}
	if r.Key != nil {
		return []byte(*r.Key)
	}
	return nil
}

// Defaults fill what a row that was inserted by plain SQL does not say.
type Defaults struct {
	Source      string                    // ce_source
	ContentType func(topic string) string // nil: application/json
}

// Message is the row as it goes to Kafka: subject from the key, time from created_at, correlation from the id, and the
// Defaults, where the headers do not say otherwise. Its id is the column's; only one that is no UUID, as in messages of
// others that failed and are sent again, stands in raw_headers. Headers that cannot be read give an error that wraps
// envelope.ErrHeaders; what could be read of them is in Extra.
func (r *Row) Message(d Defaults) (envelope.Message, error) {
	m := envelope.Message{Topic: r.Topic, Key: r.OrderKey(), Payload: r.Payload}
	hs, err := r.headerList()
	if err != nil {
		return m, fmt.Errorf("outbox: row %d: %w", r.Position, err)
	}
	if err := m.SetHeaders(hs); err != nil {
		m.Extra = hs
		return m, fmt.Errorf("outbox: row %d: %w", r.Position, err)
	}
	if r.RawHeaders == nil || m.ID == "" || isUUID(m.ID) {
		m.ID = r.ID.String()
	}
	m.Type = r.Type
	fill(&m.Source, d.Source)
	fill(&m.CorrelationID, m.ID)
	if m.Time.IsZero() {
		m.Time = r.CreatedAt
	}
	if isText(string(m.Key)) {
		fill(&m.Subject, string(m.Key))
	}
	if m.ContentType == "" && m.Payload != nil {
		m.ContentType = envelope.JSON
		if d.ContentType != nil {
			m.ContentType = d.ContentType(r.Topic)
		}
	}
	return m, nil
}

func isUUID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}

func (r *Row) headerList() ([]envelope.Header, error) {
	if r.RawHeaders != nil {
		return envelope.UnmarshalHeaders(r.RawHeaders)
	}
	if len(r.Headers) == 0 || string(r.Headers) == "{}" {
		return nil, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(r.Headers, &object); err != nil {
		return nil, fmt.Errorf("%w: column headers: %w", envelope.ErrHeaders, err)
	}
	hs := make([]envelope.Header, 0, len(object))
	for key, value := range object {
		h := envelope.Header{Key: key, Value: value} // numbers, true and objects as their JSON text
		var text *string
		if json.Unmarshal(value, &text) == nil {
			h.Value = nil
			if text != nil {
				h.Value = []byte(*text)
			}
		}
		hs = append(hs, h)
	}
	slices.SortFunc(hs, func(a, b envelope.Header) int { return strings.Compare(a.Key, b.Key) })
	return hs, nil
}

func fill(s *string, with string) {
	if *s == "" {
		*s = with
	}
}
