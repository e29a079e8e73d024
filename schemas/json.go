package schemas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/linkedin/goavro/v2"
	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
)

// goavro's limits are package variables, and so apply to all code in the process that uses it. They are a second check after
// shape.check, and no lower than its limits: goavro also cuts arrays that it writes into blocks of at most that many items.
func init() {
	goavro.MaxBlockCount = maxValues
	goavro.MaxBlockSize = 16 << 20
}

// A generic is one schema for values whose Go type is not known, or the error if it cannot be used.
type generic struct {
	name   string
	root   *avro.SchemaNode
	types  tree
	shape  *shape
	tagged *goavro.Codec // unions as {"string": "x"}
	bare   *goavro.Codec // unions as "x"; nil if the schema is recursive
	// hasBytes reports that JSON must be converted before goavro encodes it.
	hasBytes bool
	err      error
}

// ToJSON converts a payload in wire format to JSON, in Avro's own encoding, in which a union's value names its branch.
// FromJSON converts it back to the same payload, except for how arrays are cut into blocks. ToJSON also returns the full name
// of the record that the payload was written as, or the kind of schema if that has no name. Errors are the same as Decode's.
//
// Infinities become 1e999 and NaN becomes null, which are not JSON's representation of a float.
func (c *Codec) ToJSON(ctx context.Context, payload []byte) (schemaName string, text []byte, err error) {
	id, body, err := cutHeader(payload)
	if err != nil {
		return "", nil, err
	}
	g, err := c.generic(ctx, id)
	if err != nil {
		return "", nil, err
	}
	if err := g.shape.check(body); err != nil {
		return g.name, nil, poison(g.name, err)
	}
	err = avsc.Guard(func() error {
		value, _, err := g.tagged.NativeFromBinary(body)
		if err == nil {
			text, err = g.tagged.TextualFromNative(nil, value)
		}
		return err
	})
	return g.name, text, poison(g.name, err)
}

// FromJSON converts JSON to a payload in wire format, with the schema that is bound under name, else with the latest version
// of the subject of that name, which is at most a minute old.
//
// The value of a union may name its branch, as ToJSON writes it, or may be a bare value, as in other JSON. For a bare value
// the first branch that can hold it is used, for numbers in the order double, float, int, long. A bare value is not accepted
// if the schema is recursive, since trying the branches would take exponential time. Fields that the record does not have are
// errors. A decimal may be the text of its bytes, as ToJSON writes it, or a number, which is not rounded; a UUID of 16 bytes may
// be its usual text.
//
// An error wraps envelope.ErrPayload if text does not fit the schema, and begins with the path of the first mistake
// ("lines[1].cents: want a long, got a string") if that can be determined. It wraps ErrNoSchema if there is no schema.
func (c *Codec) FromJSON(ctx context.Context, name string, text []byte) ([]byte, error) {
	id, err := c.idOf(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.fromJSON(ctx, id, name, text, false)
}

// FromValues is FromJSON for the JSON of values as Values returns them. A text for a decimal is an error, and not taken for the
// bytes of another number; so is null where the schema does not allow it, and not taken for NaN.
func (c *Codec) FromValues(ctx context.Context, name string, text []byte) ([]byte, error) {
	id, err := c.idOf(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.fromJSON(ctx, id, name, text, true)
}

// FromJSONLike is FromJSON with the schema of another payload in wire format: readers of that payload can read the new one.
// Only the schema id of like is read, so its body may be invalid.
func (c *Codec) FromJSONLike(ctx context.Context, like, text []byte) ([]byte, error) {
	id, _, err := cutHeader(like)
	if err != nil {
		return nil, err
	}
	return c.fromJSON(ctx, id, "", text, false)
}

// fromJSON converts text with schema id. With values it must have the form that Values returns.
func (c *Codec) fromJSON(ctx context.Context, id uint32, name string, text []byte, values bool) ([]byte, error) {
	g, err := c.generic(ctx, id)
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = g.name
	}
	if err := checkJSON(text); err != nil {
		return nil, poison(name, err)
	}
	if g.hasBytes || values {
		if text, err = (writer{g.types, values}).convert(text); err != nil {
			return nil, poison(name, err)
		}
	}
	payload, err := g.encode(g.tagged, id, text)
	if err != nil && g.bare != nil {
		if again, bareErr := g.encode(g.bare, id, text); bareErr == nil {
			return again, nil
		}
	}
	if err != nil {
		if m := findMistake(g.root, text); m != nil {
			err = m // the library's error does not contain the path
		}
	}
	return payload, poison(name, err)
}

func (g generic) encode(codec *goavro.Codec, id uint32, text []byte) (payload []byte, err error) {
	err = avsc.Guard(func() error {
		value, rest, err := codec.NativeFromTextual(text)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(rest)) > 0 {
			return errors.New("there is more behind the value")
		}
		payload, err = codec.BinaryFromNative(appendHeader(nil, id), value)
		return err
	})
	if err == nil {
		err = g.shape.check(payload[headerSize:])
	}
	if err != nil {
		return nil, err
	}
	return payload, nil
}

func (c *Codec) idOf(ctx context.Context, name string) (uint32, error) {
	if b := c.byName[name]; b != nil {
		return b.id, nil
	}
	id, _, err := c.registry.Latest(ctx, name)
	return id, err
}

func (c *Codec) generic(ctx context.Context, id uint32) (generic, error) {
	if g, ok := c.generics.Get(id); ok {
		return g, g.err
	}
	text, err := c.registry.ByID(ctx, id)
	if err != nil {
		return generic{}, asPayload(err)
	}
	g := makeGeneric(text)
	if g.err != nil {
		g.err = fmt.Errorf("%w: schema id %d: %w", envelope.ErrPayload, id, g.err)
	}
	c.generics.Put(id, g, avsc.ParsedBytes(text))
	return g, g.err
}

func makeGeneric(text string) (g generic) {
	g.err = avsc.Guard(func() error {
		var err error
		if g.types.Tree, err = avsc.Parse(text); err != nil {
			return err
		}
		g.root, g.hasBytes = g.types.Root, g.types.hasBytes()
		if g.name = avsc.FullName(g.root); g.name == "" {
			g.name = g.root.Type
		}
		if g.shape, err = shapeOf(g.types.Schema); err != nil {
			return err
		}
		if g.tagged, err = goavro.NewCodec(text); err != nil || g.shape.recursive {
			return err
		}
		g.bare, err = goavro.NewCodecForStandardJSON(text)
		return err
	})
	return g
}

// asPayload marks an unknown schema id as an error of the payload.
func asPayload(err error) error {
	if errors.Is(err, ErrNoSchema) {
		return fmt.Errorf("%w: %w", envelope.ErrPayload, err)
	}
	return err
}

// checkJSON accepts one JSON value of the depth that its binary may have. encoding/json alone would accept 10,000 levels, and
// each level of goavro copies the error of the one below.
func checkJSON(text []byte) error {
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
