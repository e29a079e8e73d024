package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/schemas"
)

// payloadLimit is the size of the largest payload that is read, and payloadShown the size of the largest JSON that is shown. keyShown is the
// number of bytes that are kept of a key; no subject is longer.
const (
	payloadLimit = 1 << 20
	payloadShown = 4 << 10
	keyShown     = 1024
)

// payloads renders payloads as JSON. After a registry has not answered it is not queried again: a timeline of a thousand messages
// must not wait a thousand times.
type payloads struct {
	codec *schemas.Codec // nil without a registry
	down  error
	limit time.Duration
}

func newPayloads(ctx context.Context, registry *schemas.Registry, limit time.Duration) (p payloads, err error) {
	p.limit = limit
	if registry != nil {
		p.codec, err = schemas.New(ctx, schemas.Config{Registry: registry, Formats: formats.All(), ReadOnly: true})
	}
	return p, err
}

// entry returns an Entry with the fields that all kinds have, and with the payload if it can be shown.
func (p *payloads) entry(ctx context.Context, m envelope.Message, payload []byte, size int) Entry {
	e := Entry{
		At: jsonTime(m.Time), ID: m.ID, Type: m.Type, Key: keyOf(m.Key), Outcome: m.Outcome,
		CorrelationID: m.CorrelationID, CausationID: m.CausationID, Cause: -1, identity: m.Identity(),
	}
	if e.CorrelationID == "" {
		e.CorrelationID = e.ID // the messages that follow from it get its id as theirs
	}
	e.Kind, e.Hop = kindOf(m.Topic)
	for _, h := range m.Extra {
		switch h.Key {
		case deadletter.HeaderRedrive:
			e.Redrive = number(h.Value)
		case ce.HeaderDeadline:
			e.Deadline = cut(string(h.Value[bytes.LastIndexByte(h.Value, '/')+1:]), 100)
		}
	}
	p.show(ctx, &e, m.ContentType, payload, size)
	if e.Deadline != "" {
		var body struct{ Expects []string }
		if json.Unmarshal(e.Payload, &body) == nil {
			e.Expects = body.Expects
		}
	}
	return e
}

// jsonTime returns t in UTC, or the zero time if t is outside the years that JSON can have. A producer can give a record any time.
func jsonTime(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// show sets e's payload. size is the size of the whole payload. If that is too large, b is nil.
func (p *payloads) show(ctx context.Context, e *Entry, contentType string, b []byte, size int) {
	if size == 0 {
		e.PayloadNote = "none"
		return
	}
	text, err := p.render(ctx, contentType, b, size)
	switch {
	case err != nil:
		e.PayloadNote = fmt.Sprintf("%d bytes: %s", size, cut(err.Error(), 200))
	case len(text) > payloadShown:
		e.PayloadNote = fmt.Sprintf("%d bytes as JSON, more than is shown", len(text))
	default:
		e.Payload = bytes.Clone(text) // else the entry would keep the whole batch of its record in memory
	}
}

func (p *payloads) render(ctx context.Context, contentType string, b []byte, size int) (json.RawMessage, error) {
	if size > payloadLimit || b == nil {
		return nil, errors.New("more than is read")
	}
	if media, _, _ := mime.ParseMediaType(contentType); media == envelope.JSON && !bytes.HasPrefix(b, []byte{0}) || contentType == "" && json.Valid(b) {
		if !json.Valid(b) {
			return nil, errors.New("no JSON, though its content type says so")
		}
		return json.RawMessage(b), nil
	}
	switch {
	case p.codec == nil && envelope.HasSchemaID(contentType):
		return nil, fmt.Errorf("%s, and no registry is set that has its schema", contentType)
	case p.codec == nil:
		return nil, fmt.Errorf("content type %q", cut(contentType, 100))
	case p.down != nil:
		return nil, p.down
	}
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	_, text, err := p.codec.ToJSON(limited, b)
	switch {
	case err != nil && limited.Err() != nil:
		p.down = err
	case err == nil && !json.Valid(text):
		err = errors.New("it holds a number that JSON has no form for")
	}
	return text, err
}

// cut returns s on one line, with at most limit bytes.
// keyOf returns a key of at most keyShown bytes unchanged, and cuts a longer one.
func keyOf(key []byte) string {
	if len(key) <= keyShown {
		return string(key)
	}
	return strings.ToValidUTF8(string(key[:keyShown]), "") + "…"
}

func cut(s string, limit int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
