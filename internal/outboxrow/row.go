// Package outboxrow knows the rows of the table troupe.outbox: their columns, how a row becomes a message, and the channel on which
// writers notify. Package outbox writes the rows; the relay, participants with local work, and the operator's tools read them.
package outboxrow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
)

// Channel is the Postgres notification channel: writers notify on it, relays and local participants listen. The payload is
// empty, or a topic with new rows. Programs that insert with plain SQL may send an empty payload, or no notification: all
// listeners also poll.
const Channel = "troupe_outbox"

// Columns lists the columns that a Row is scanned from, in this order.
const Columns = "position, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at"

// A Row is one entry as it is stored in the table.
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

// Fields returns the scan targets for Columns.
func (r *Row) Fields() []any {
	id := (*[16]byte)(&r.ID) // not uuid.UUID, which pgx would read as text
	return []any{&r.Position, id, &r.Topic, &r.Key, &r.KeyBytes, &r.Type, &r.Headers, &r.RawHeaders, &r.Payload, (*finite)(&r.CreatedAt)}
}

// finite scans a timestamp. Infinity and years that RFC 3339 cannot express become the zero time.
type finite time.Time

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (f *finite) ScanTimestamptz(v pgtype.Timestamptz) error {
	*f = finite{}
	if year := v.Time.UTC().Year(); v.InfinityModifier == pgtype.Finite && year >= 1 && year <= 9999 {
		*f = finite(v.Time)
	}
	return nil
}

// LocalPartition is the partition of a message of local work. Its offset is the entry's position.
const LocalPartition = -1

// LocalTopicID returns a UUID in place of the topic id that a message from Kafka has.
func LocalTopicID(topic string) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("troupe:local:"+topic))
}

// OrderKey returns the key whose order is kept, as bytes; nil for none.
func (r *Row) OrderKey() []byte {
	if r.KeyBytes != nil {
		return r.KeyBytes
	}
	if r.Key != nil {
		return []byte(*r.Key)
	}
	return nil
}

// Defaults holds values for attributes that a row inserted by plain SQL does not have.
type Defaults struct {
	Source      string                    // ce_source
	ContentType func(topic string) string // nil: application/json
}

// Message returns the row as it is sent to Kafka. Where the headers do not say otherwise, the subject is the key, the time is
// created_at, the correlation is the id, and source and content type are the Defaults. The id is the column's. Only an id
// that is not a UUID, as in failed messages of other programs that are sent again, is in raw_headers. Headers that cannot be
// read give an error that wraps envelope.ErrHeaders; the headers that could be read are in Extra.
func (r *Row) Message(d Defaults) (envelope.Message, error) {
	m := envelope.Message{Topic: r.Topic, Key: r.OrderKey(), Payload: r.Payload}
	hs, err := r.headerList()
	if err != nil {
		m.Extra = hs
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
	if pgtext.Fits(m.Key) {
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

// mostJSON is the size of a longer text than the headers of a message can have, also if each character is escaped. A field of such a text may have
// eight bytes, and takes hundreds in memory.
const mostJSON = 16 * envelope.MaxHeaderBytes

func (r *Row) headerList() ([]envelope.Header, error) {
	if r.RawHeaders != nil {
		return envelope.UnmarshalHeaders(r.RawHeaders)
	}
	switch {
	case len(r.Headers) == 0 || string(r.Headers) == "{}":
		return nil, nil
	case len(r.Headers) > mostJSON:
		return nil, fmt.Errorf("%w: column headers has %d bytes, more than %d", envelope.ErrHeaders, len(r.Headers), mostJSON)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(r.Headers, &object); err != nil {
		return nil, fmt.Errorf("%w: column headers: %w", envelope.ErrHeaders, err)
	}
	hs := make([]envelope.Header, 0, len(object))
	for key, value := range object {
		h := envelope.Header{Key: key, Value: value} // numbers, true and objects stay JSON text
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
