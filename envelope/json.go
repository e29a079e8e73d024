package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/troupe-go/troupe/internal/jsontext"
)

// ErrPayload is wrapped by errors about bytes that can never be decoded as their declared type.
var ErrPayload = errors.New("unreadable payload")

// A Typed body names its own message type.
type Typed interface{ MessageType() string }

// A Plain body is always encoded as JSON, even if the flow uses another codec, so that readers without the flow's schemas can
// decode it.
type Plain interface {
	Typed
	PlainJSON()
}

// JSONCodec encodes and decodes application/json. A body's message type is the result of its MessageType, else the name of
// its Go type without the package. outbox and participant use it if no codec is set. It is safe for concurrent use.
type JSONCodec struct{}

var _ Codec = JSONCodec{}

// Encode renders body with encoding/json.
func (JSONCodec) Encode(_ string, body any) (Encoded, error) {
	name, err := JSONCodec{}.TypeOf(body)
	if err != nil {
		return Encoded{}, err
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return Encoded{}, fmt.Errorf("encode %s: %w", name, err)
	}
	return Encoded{Type: name, ContentType: JSON, Payload: payload}, nil
}

// TypeOf returns the message type of body's Go type.
func (JSONCodec) TypeOf(body any) (string, error) {
	if b, ok := body.(Typed); ok {
		return b.MessageType(), nil
	}
	t := reflect.TypeOf(body)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Name() == "" {
		return "", fmt.Errorf("%T has no name to serve as the message's type: use a named type", body)
	}
	return t.Name(), nil
}

// Decode reads JSON of at most 1,048,576 values; unknown fields are ignored. Its errors quote nothing of the payload, since errors are logged and
// payloads hold personal data: they name the field, the kind of its value and the Go type, or the offset.
func (JSONCodec) Decode(m Message, into any) error {
	if m.ContentType != "" && m.ContentType != JSON {
		return fmt.Errorf("%w: content type is %q, want %q", ErrPayload, m.ContentType, JSON)
	}
	if err := jsontext.CheckValues(m.Payload); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	if err := json.Unmarshal(m.Payload, into); err != nil {
		return fmt.Errorf("%w: %s", ErrPayload, unquoted(err))
	}
	return nil
}

// unquoted describes an error of encoding/json without the payload's text. Errors of a field's own UnmarshalJSON or
// UnmarshalText may quote all of it, as time.Time does.
func unquoted(err error) string {
	var (
		syntax *json.SyntaxError
		typ    *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("no JSON from byte %d", syntax.Offset)
	case errors.As(err, &typ):
		kind, _, _ := strings.Cut(typ.Value, " ") // Value is "number 41" if the number does not fit
		return fmt.Sprintf("field %q at byte %d: a JSON %s does not fit %s", typ.Field, typ.Offset, kind, typ.Type)
	}
	return fmt.Sprintf("a value does not fit its Go type (%T)", err)
}
