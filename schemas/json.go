package schemas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/jsontext"
)

// ToJSON converts a payload in wire format to JSON, in Avro's own encoding, in which a union's value names its branch.
// FromJSON converts it back to the same payload, except for how arrays are cut into blocks. ToJSON also returns the full name
// of the record that the payload was written as, or the kind of schema if that has no name. Errors are the same as Decode's, and
// ErrPayload for more than 16 MiB.
//
// Infinities become 1e999 and NaN becomes null, which are not JSON's representation of a float.
//
// Protobuf is converted to its own JSON, with the names of the .proto file, and the JSON of a JSON Schema is returned as it is.
func (c *Codec) ToJSON(ctx context.Context, payload []byte) (schemaName string, text []byte, err error) {
	id, body, err := cutConvertible(payload)
	if err != nil {
		return "", nil, err
	}
	s, err := c.schema(ctx, id)
	if err != nil {
		return "", nil, err
	}
	err = avsc.Guard(func() error {
		schemaName, text, err = s.ToJSON(body)
		return err
	})
	return schemaName, text, poison(schemaName, s.safe(err))
}

// maxConverted is the size of the largest payload that is converted to JSON or to values. A character may become six, and there are several
// copies of a text while it grows.
const maxConverted = 16 << 20

// cutConvertible cuts the header as cutHeader does, and refuses a payload above maxConverted.
func cutConvertible(payload []byte) (id uint32, body []byte, err error) {
	if len(payload) > maxConverted {
		return 0, nil, poison("", fmt.Errorf("a payload of %d bytes is not converted: at most %d are", len(payload), maxConverted))
	}
	return cutHeader(payload)
}

// FromJSON converts JSON to a payload in wire format, with the schema that is bound under name, else with the latest version
// of the subject of that name, which is at most a minute old.
//
// The value of a union may name its branch, as ToJSON writes it, or may be a bare value, as in other JSON. For a bare value
// the first branch that can hold it is used, for numbers in the order double, float, int, long. A bare value is not accepted
// if the schema is recursive, since trying the branches would take exponential time, nor, if a union is within a branch of another one, in a text of
// which the number of values times the number of bytes is above 2^33. Fields that the record does not have are
// errors. A decimal may be the text of its bytes, as ToJSON writes it, or a number, which is not rounded; a UUID of 16 bytes may
// be its usual text.
//
// An error wraps envelope.ErrPayload if text does not fit the schema, and begins with the path of the first mistake
// ("lines[1].cents: want a long, got a string") if that can be determined. It wraps ErrNoSchema if there is no schema.
func (c *Codec) FromJSON(ctx context.Context, name string, text []byte) (envelope.Encoded, error) {
	return c.fromJSON(ctx, name, text, false)
}

// FromValues is FromJSON for the JSON of values as Values returns them. A text for a decimal is an error, and not taken for the
// bytes of another number; so is null where the schema does not allow it, and not taken for NaN.
func (c *Codec) FromValues(ctx context.Context, name string, text []byte) (envelope.Encoded, error) {
	return c.fromJSON(ctx, name, text, true)
}

// fromJSON converts text. With values it must have the form that Values returns.
func (c *Codec) fromJSON(ctx context.Context, name string, text []byte, values bool) (envelope.Encoded, error) {
	id, err := c.idOf(ctx, name)
	if err != nil {
		return envelope.Encoded{}, err
	}
	s, err := c.schema(ctx, id)
	if err != nil {
		return envelope.Encoded{}, err
	}
	convert := s.FromJSON
	if values {
		convert = s.FromValues
	}
	payload, err := s.encode(id, name, text, func() ([]byte, error) { return convert(name, text) })
	return envelope.Encoded{Type: name, ContentType: s.contentType, Payload: payload}, err
}

// FromJSONLike is FromJSON with the schema of another payload in wire format: readers of that payload can read the new one. Of like
// only the schema id is read, and the type of a Protobuf message, so an Avro body may be invalid.
func (c *Codec) FromJSONLike(ctx context.Context, like, text []byte) ([]byte, error) {
	id, body, err := cutHeader(like)
	if err != nil {
		return nil, err
	}
	s, err := c.schema(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.encode(id, s.name, text, func() ([]byte, error) { return s.FromJSONLike(body, text) })
}

// encode checks text, converts it, and puts the header before the body.
func (s schema) encode(id uint32, name string, text []byte, convert func() ([]byte, error)) (payload []byte, err error) {
	if err := checkJSON(text); err != nil {
		return nil, poison(name, err)
	}
	err = avsc.Guard(func() error {
		body, err := convert()
		payload = append(appendHeader(make([]byte, 0, headerSize+len(body)), id), body...)
		return err
	})
	if err != nil {
		return nil, poison(name, s.safe(err))
	}
	return payload, nil
}

func (c *Codec) idOf(ctx context.Context, name string) (uint32, error) {
	if b := c.byName[name]; b != nil {
		return b.id, nil
	}
	return c.registry.Latest(ctx, name)
}

// asPayload marks an unknown schema id as an error of the payload.
func asPayload(err error) error {
	if errors.Is(err, ErrNoSchema) {
		return fmt.Errorf("%w: %w", envelope.ErrPayload, err)
	}
	return err
}

// checkJSON accepts one JSON value of the size and the depth that its binary may have. encoding/json alone would accept 10,000 levels, and
// each level of goavro copies the error of the one below.
func checkJSON(text []byte) error {
	if err := jsontext.CheckValues(text); err != nil {
		return err
	}
	if !json.Valid(text) {
		var v any
		return fmt.Errorf("not JSON: %w", json.Unmarshal(text, &v))
	}
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case inString:
			if b == '\\' {
				i++
			}
			inString = b != '"'
		case b == '"':
			inString = true
		case b == '{' || b == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("more than %d levels deep", maxDepth)
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return nil
}
