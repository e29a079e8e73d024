package schemas

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/linkedin/goavro/v2"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/jsontext"
	"github.com/troupe-go/troupe/internal/payload"
	"github.com/troupe-go/troupe/internal/registry"
)

// A schema converts payloads whose Go type is not known, or holds the error if it cannot be used.
type schema struct {
	payload.Schema
	name        string // of an Avro schema
	format      sr.SchemaType
	contentType string
	err         error
}

// safe returns err without values of the payload. The errors for Avro have none.
func (s schema) safe(err error) error {
	if s.format == sr.TypeAvro {
		return err
	}
	return unquoted(err)
}

// schema returns the schema with an id, which it compiles once, unless that took too long.
func (c *Codec) schema(ctx context.Context, id uint32) (schema, error) {
	if s, ok := c.generics.Get(id); ok {
		return s, s.err
	}
	text, err := c.registry.ByID(ctx, id)
	if err != nil {
		return schema{}, asPayload(err)
	}
	s := c.compile(text)
	if errors.Is(s.err, context.DeadlineExceeded) { // the process was frozen, or the machine is busy: the schema may be good
		return schema{}, fmt.Errorf("schema id %d: %w", id, s.err)
	}
	if s.err != nil {
		s.err = fmt.Errorf("%w: schema id %d: %w", envelope.ErrPayload, id, s.err)
	}
	c.generics.Put(id, s, avsc.ParsedBytes(text.Source.Size()))
	return s, s.err
}

func (c *Codec) compile(text registry.Stored) (s schema) {
	s.format, s.contentType = text.Format, envelope.Avro
	s.err = avsc.Guard(func() (err error) {
		if text.Format == sr.TypeAvro {
			avro, err := newAvroSchema(text.Source.Text)
			if err == nil {
				s.Schema, s.name = avro, avro.name
			}
			return err
		}
		f := c.formats[text.Format.String()]
		if f == nil {
			return fmt.Errorf("%w: it is %s, and Config.Formats has no such format", ErrNoSchema, text.Format)
		}
		s.contentType = f.ContentType()
		s.Schema, err = f.Compile(text.Source)
		return err
	})
	return s
}

// goavro's limits are package variables, and so apply to all code in the process that uses it. They are a second check after
// shape.check, and no lower than its limits: goavro also cuts arrays that it writes into blocks of at most that many items.
func init() {
	goavro.MaxBlockCount = maxValues
	goavro.MaxBlockSize = 16 << 20
}

// An avroSchema is an Avro schema for values whose Go type is not known.
type avroSchema struct {
	name   string
	root   *avro.SchemaNode
	types  tree
	shape  *shape
	tagged *goavro.Codec // unions as {"string": "x"}
	bare   *goavro.Codec // unions as "x"; nil if the schema is recursive
	// hasBytes reports that JSON must be converted before goavro encodes it.
	hasBytes bool
	// hasDefaults reports that a record may become larger than its JSON.
	hasDefaults bool
	// triesAgain reports that after a failure in a union goavro tries the next branch of a union around it.
	triesAgain bool
}

func newAvroSchema(text string) (g *avroSchema, err error) {
	g = &avroSchema{}
	if g.types.Tree, err = avsc.Parse(text); err != nil {
		return nil, err
	}
	g.root, g.hasBytes, g.hasDefaults = g.types.Root, g.types.hasBytes(), g.types.hasDefaults()
	g.triesAgain = g.types.triesAgain()
	if g.name = avsc.FullName(g.root); g.name == "" {
		g.name = g.root.Type
	}
	if g.shape, err = shapeOf(g.types.Schema); err != nil {
		return nil, err
	}
	if g.tagged, err = goavro.NewCodec(text); err != nil || g.shape.recursive {
		return g, err
	}
	g.bare, err = goavro.NewCodecForStandardJSON(text)
	return g, err
}

func (g *avroSchema) ToJSON(body []byte) (name string, text []byte, err error) {
	if err := g.shape.check(body); err != nil {
		return g.name, nil, err
	}
	value, _, err := g.tagged.NativeFromBinary(body)
	if err == nil {
		text, err = g.tagged.TextualFromNative(nil, value)
	}
	return g.name, text, err
}

func (g *avroSchema) FromJSON(_ string, text []byte) ([]byte, error) { return g.fromJSON(text, false) }

func (g *avroSchema) FromValues(_ string, text []byte) ([]byte, error) { return g.fromJSON(text, true) }

func (g *avroSchema) FromJSONLike(_, text []byte) ([]byte, error) { return g.fromJSON(text, false) }

// maxTried limits the product of the values of a text and its bytes. If goavro can read a bare value as no branch of a union, it copies the rest of
// the text into the error. A union around this one then tries its next branch: an array of a million such values took terabytes, one after
// the other.
const maxTried = 1 << 33

var errTried = errors.New("the text is too long for bare values of a union within a union: name the branches")

// fromJSON converts text. With values it must have the form that Values returns.
func (g *avroSchema) fromJSON(text []byte, values bool) (body []byte, err error) {
	if err := g.checkFields(text); err != nil {
		return nil, err
	}
	if g.hasBytes || values {
		if text, err = (writer{g.types, values}).convert(text); err != nil {
			return nil, err
		}
	}
	if g.shape.recursive {
		if err := checkNested(g.root, text); err != nil {
			return nil, err
		}
	}
	body, err = g.encode(g.tagged, text)
	if err != nil && g.bare != nil && g.triesAgain && jsontext.Values(text) > maxTried/len(text) {
		return nil, errTried
	}
	if err != nil && g.bare != nil {
		if again, bareErr := g.encode(g.bare, text); bareErr == nil {
			return again, nil
		}
	}
	if err != nil {
		if m := findMistake(g.root, text); m != nil {
			err = m // the library's error does not contain the path
		}
	}
	return body, err
}

func (g *avroSchema) encode(codec *goavro.Codec, text []byte) (body []byte, err error) {
	err = avsc.Guard(func() error {
		value, rest, err := codec.NativeFromTextual(text)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(rest)) > 0 {
			return errors.New("there is more behind the value")
		}
		body, err = codec.BinaryFromNative(nil, value)
		return err
	})
	if err == nil {
		err = g.shape.check(body)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}
