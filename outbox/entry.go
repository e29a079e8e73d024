package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
)

// An Entry is one message to write. Topic is required, and also Body or Type.
type Entry struct {
	Topic string

	// Key orders messages: messages with the same key keep their order. It is also the message's subject. A message with an empty Key has no
	// key and no order.
	Key string
	// KeyBytes is a key that is not text. If set, Key is ignored.
	KeyBytes []byte

	// Body is encoded by the Encoder. If Body is nil, Payload is written unchanged, with Type and ContentType; a nil Payload is then a
	// tombstone.
	Body        any
	Payload     []byte
	Type        string // with a Body: overrides the Encoder's type
	ContentType string // ignored with a Body

	Outcome        envelope.Outcome
	IdempotencyKey string
	SagaID         string
	SagaStep       string
	SagaOperation  string

	// ID is a UUID. If it is empty, the id is derived from the message that is being handled. Outside of a handler the id is new.
	ID string

	// Headers are written in addition to the attributes.
	Headers []envelope.Header
}

// columns holds an entry's values for the table's columns.
type columns struct {
	id         [16]byte // not uuid.UUID, which pgx would send as text
	topic      string
	key        *string
	keyBytes   []byte
	typ        string
	headers    []byte // jsonb
	rawHeaders []byte
	payload    []byte
}

// columns checks an entry and returns its columns. It adds the statements of the Check to along.
func (o *Outbox) columns(ctx context.Context, e Entry, traceparent, tracestate string, along *pgx.Batch) (columns, error) {
	m := envelope.Message{
		Topic: e.Topic, ID: e.ID, Source: o.cfg.Source, Type: e.Type, ContentType: e.ContentType, Payload: e.Payload,
		Outcome: e.Outcome, IdempotencyKey: e.IdempotencyKey,
		SagaID: e.SagaID, SagaStep: e.SagaStep, SagaOperation: e.SagaOperation,
		TraceParent: traceparent, TraceState: tracestate,
		Extra: e.Headers,
	}
	if e.Topic == "" {
		return columns{}, fmt.Errorf("entry without a topic")
	}
	if e.Body != nil {
		encoder := o.cfg.Encoder
		if _, plain := e.Body.(envelope.Plain); plain {
			encoder = envelope.JSONCodec{}
		}
		encoded, err := encoder.Encode(e.Topic, e.Body)
		if err != nil {
			return columns{}, err
		}
		m.Payload, m.ContentType = encoded.Payload, encoded.ContentType
		if m.Type == "" {
			m.Type = encoded.Type
		}
	}
	switch {
	case m.Type == "":
		return columns{}, fmt.Errorf("entry for %s has neither a body nor a type", e.Topic)
	case !e.Outcome.Valid():
		return columns{}, fmt.Errorf("entry for %s: outcome %q: want success, failure or exhausted", e.Topic, e.Outcome)
	case len(m.Payload) > o.cfg.MaxBytes:
		return columns{}, fmt.Errorf("entry for %s: payload of %d bytes: %w (%d)", e.Topic, len(m.Payload), ErrTooLarge, o.cfg.MaxBytes)
	}
	envelope.CauseOf(ctx).Apply(&m)
	if o.check != nil {
		if m.Key = e.KeyBytes; m.Key == nil && e.Key != "" {
			m.Key = []byte(e.Key)
		}
		m.Extra = slices.Clip(m.Extra)
		if err := o.check(ctx, &m, along); err != nil {
			return columns{}, fmt.Errorf("entry for %s: %w", e.Topic, err)
		}
	}
	id, err := uuid.Parse(m.ID)
	if err != nil {
		return columns{}, fmt.Errorf("entry for %s: id %q is no UUID", e.Topic, m.ID)
	}
	c := columns{id: id, topic: e.Topic, keyBytes: e.KeyBytes, typ: m.Type, payload: m.Payload}
	if e.Key != "" && e.KeyBytes == nil {
		c.key = &e.Key
	}
	m.ID, m.Type = "", "" // they have columns of their own
	hs := m.Headers()
	if err := envelope.CheckHeaders(hs); err != nil {
		return columns{}, fmt.Errorf("entry for %s: %w", e.Topic, err)
	}
	c.headers, c.rawHeaders, err = renderHeaders(hs)
	return c, err
}

// renderHeaders renders headers as a jsonb object. If jsonb cannot hold them (a repeated key, or text that Postgres cannot store), it
// returns an empty object as asJSON, and as raw the headers in the form of the column raw_headers.
func renderHeaders(hs []envelope.Header) (asJSON, raw []byte, err error) {
	size := 2
	for _, h := range hs {
		size += len(h.Key) + len(h.Value) + 6
	}
	b := append(make([]byte, 0, size), '{')
	for i, h := range hs {
		same := func(other envelope.Header) bool { return other.Key == h.Key }
		if slices.ContainsFunc(hs[:i], same) || !pgtext.Fits(h.Key) || !pgtext.Fits(h.Value) {
			return []byte("{}"), envelope.MarshalHeaders(hs), nil
		}
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, h.Key); err != nil {
			return nil, nil, err
		}
		b = append(b, ':')
		if h.Value == nil {
			b = append(b, "null"...)
		} else if b, err = appendJSON(b, h.Value); err != nil {
			return nil, nil, err
		}
	}
	return append(b, '}'), nil, nil
}

// appendJSON appends s as a JSON string. Most strings need no escapes, and are appended unchanged.
func appendJSON[T string | []byte](b []byte, s T) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(string(s))
			return append(b, quoted...), err
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}
