package repair

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/troupe-go/troupe/envelope"
)

// A Payload is shown as JSON if possible, else as hex.
type Payload struct {
	Format   string          `json:"format"` // json, avro, protobuf, json-schema, bytes, or none for a tombstone
	Schema   string          `json:"schema,omitempty"`
	SchemaID uint32          `json:"schema_id,omitempty"`
	Bytes    int             `json:"bytes"`
	JSON     json.RawMessage `json:"json,omitempty"`
	Hex      string          `json:"hex,omitempty"`
	Note     string          `json:"note,omitempty"` // the reason why it is shown as hex
}

// These are the formats.
const (
	formatNone       = "none"
	formatJSON       = "json"
	formatAvro       = "avro"
	formatProtobuf   = "protobuf"
	formatJSONSchema = "json-schema"
	formatBytes      = "bytes"
)

// hasSchema reports whether payloads of a format begin with the id of their schema.
func hasSchema(format string) bool {
	return format == formatAvro || format == formatProtobuf || format == formatJSONSchema
}

// wireHeader is the length of a zero byte and the schema id, with which Confluent's wire format begins.
const wireHeader = 5

// formatOf decides by the content type, and without one by the bytes, as decoders do. A payload in wire format without a content type
// counts as Avro, whatever its schema is.
func formatOf(contentType string, payload []byte) string {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case payload == nil:
		return formatNone
	case media == envelope.Protobuf:
		return formatProtobuf
	case media == envelope.JSONSchema, media == envelope.JSON && inWireFormat(payload): // JSON never begins with a zero byte
		return formatJSONSchema
	case media == envelope.JSON || strings.HasSuffix(media, "+json"):
		return formatJSON
	case media == envelope.Avro, media == "" && inWireFormat(payload):
		return formatAvro
	case media == "" && json.Valid(payload):
		return formatJSON
	}
	return formatBytes
}

func inWireFormat(payload []byte) bool { return len(payload) >= wireHeader && payload[0] == 0 }

// show never fails: a payload that cannot be decoded is shown as hex, with a note.
func (d *Desk) show(ctx context.Context, contentType string, payload []byte) Payload {
	p := Payload{Format: formatOf(contentType, payload), Bytes: len(payload)}
	switch {
	case p.Format == formatNone:
		return p
	case p.Format == formatJSON:
		if json.Valid(payload) {
			p.JSON = bytes.Clone(payload)
			return p
		}
		p.Note = "the content type says JSON, and it is not"
	case hasSchema(p.Format):
		if inWireFormat(payload) {
			p.SchemaID = binary.BigEndian.Uint32(payload[1:])
		}
		if d.codec == nil {
			p.Note = p.Format + ": name a schema registry to see it as JSON"
			break
		}
		var err error
		if p.Schema, p.JSON, err = d.codec.ToJSON(ctx, payload); err == nil && json.Valid(p.JSON) {
			return p
		}
		p.JSON = nil
		if err != nil {
			p.Note = err.Error()
		}
	}
	p.Hex = hex.EncodeToString(payload)
	return p
}

// encode returns the edited payload, in the format of the message.
func (d *Desk) encode(ctx context.Context, contentType, typ string, payload, text []byte) ([]byte, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || !json.Valid(text) {
		var v any
		return nil, fmt.Errorf("%w: not JSON: %w", ErrPayload, json.Unmarshal(text, &v))
	}
	switch format := formatOf(contentType, payload); {
	case format == formatJSON:
		return text, nil
	case hasSchema(format):
		if d.codec == nil {
			return nil, fmt.Errorf("%w: it is %s: name the schema registry, without which it cannot be written", ErrPayload, format)
		}
		var edited []byte
		var err error
		if inWireFormat(payload) {
			edited, err = d.codec.FromJSONLike(ctx, payload, text)
		} else { // without the wire format, the type names the schema
			var encoded envelope.Encoded
			encoded, err = d.codec.FromJSON(ctx, typ, text)
			edited = encoded.Payload
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPayload, err)
		}
		return edited, nil
	case format == formatNone:
		return nil, fmt.Errorf("%w: the message is a tombstone, which has none", ErrPayload)
	default:
		return nil, fmt.Errorf("%w: the message is neither JSON nor has it a schema of the registry (content type %q), and an edit is JSON: have its producer "+
			"send it again under a new ce_id, and discard this one", ErrPayload, contentType)
	}
}
