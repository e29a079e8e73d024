package schemas

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/jsontext"
	"github.com/troupe-go/troupe/internal/registry"
)

type readerKey struct {
	id uint32
	to *binding
}

// A reader decodes payloads written with one schema into the struct of one binding, or holds the error if that is impossible.
type reader struct {
	shape  *shape // shape of the writer's schema
	schema *avro.Schema
	err    error
}

// Decode decodes m's payload into a pointer to a bound struct. It resolves the schema that the payload was written with to
// the struct's: fields that only the writer has are skipped, fields that only the reader has get their defaults, numbers are
// promoted.
//
// JSON is accepted too: it is decoded into a bound struct by the schema (unknown fields are ignored, missing ones need a
// default), and into any other value by encoding/json. All other content types, and none, mean the wire format.
//
// An error that wraps envelope.ErrPayload means that the bytes can never be decoded into that type. Any other error means
// that the registry could not be queried, or does not know the schema's id yet, or that into is not bound. After an error the
// struct may be partly filled. Errors quote no value of the payload.
func (c *Codec) Decode(m envelope.Message, into any) error {
	to := c.bindingOf(into)
	if isJSON(m.ContentType) && (len(m.Payload) == 0 || m.Payload[0] != 0) { // JSON never begins with a zero byte
		if to == nil {
			m.ContentType = envelope.JSON
			return envelope.JSONCodec{}.Decode(m, into)
		}
		if err := jsontext.CheckValues(m.Payload); err != nil {
			return poison(to.name, err)
		}
		return poison(to.name, unquoted(avsc.Guard(func() error { return to.decodeJSON(m.Payload, into) })))
	}
	if to == nil {
		return unbound(into)
	}
	id, body, err := cutHeader(m.Payload)
	if err != nil {
		return err
	}
	if to.other != nil {
		return c.decodeOther(id, body, to, into)
	}
	r, err := c.reader(id, to)
	if err != nil {
		return fmt.Errorf("decode %s: %w", to.name, err)
	}
	if err := r.shape.check(body); err != nil {
		return poison(to.name, err)
	}
	return poison(to.name, unquoted(avsc.Guard(func() error {
		_, err := r.schema.Decode(body, into)
		return err
	})))
}

// reader returns the cached reader for payloads written with schema id, or makes one.
func (c *Codec) reader(id uint32, to *binding) (reader, error) {
	key := readerKey{id, to}
	if r, ok := c.readers.Get(key); ok {
		return r, r.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	text, err := c.registry.ByID(ctx, id)
	if err == nil && text.Format != sr.TypeAvro {
		err = fmt.Errorf("%w: it is %s", ErrNoSchema, text.Format)
	}
	if err != nil {
		return reader{}, unlessNotYet(err)
	}
	r := makeReader(text.Source.Text, to)
	if r.err != nil {
		r.err = fmt.Errorf("%w: schema id %d: %w", envelope.ErrPayload, id, r.err)
	}
	c.readers.Put(key, r, avsc.ParsedBytes(len(text.Source.Text)))
	return r, r.err
}

// decodeOther decodes a body of another format than Avro.
func (c *Codec) decodeOther(id uint32, body []byte, to *binding, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	if _, err := c.registry.ByID(ctx, id); err != nil {
		return fmt.Errorf("decode %s: %w", to.name, unlessNotYet(err))
	}
	written, err := c.schema(ctx, id)
	if err != nil {
		return fmt.Errorf("decode %s: %w", to.name, err)
	}
	if want := to.format.SchemaType(); written.format.String() != want {
		return poison(to.name, fmt.Errorf("schema id %d is %s, and %s is bound to %s", id, written.format, to.goType, want))
	}
	return poison(to.name, unquoted(avsc.Guard(func() error { return to.other.Decode(written.Schema, body, into) })))
}

// unlessNotYet marks an unknown schema id as an error of the payload, unless the registry may still get it.
func unlessNotYet(err error) error {
	if errors.Is(err, registry.ErrNotYet) {
		return err
	}
	return asPayload(err)
}

func makeReader(text string, to *binding) (r reader) {
	r.err = avsc.Guard(func() error {
		writer, err := avsc.Parse(text)
		if err != nil {
			return err
		}
		if err := avsc.Misread(to.Tree, writer); err != nil {
			return err
		}
		if r.schema, err = avro.Resolve(writer.Schema, to.Schema); err != nil {
			return err
		}
		r.shape, err = shapeOf(writer.Schema)
		return err
	})
	return r
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), envelope.JSON)
}

// poison marks err, unless it is nil, as caused by the payload. It cuts the text, since errors of the libraries can quote all
// of their input.
func poison(name string, err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); len(text) > 300 {
		err = errors.New(strings.ToValidUTF8(text[:300], "") + "…")
	}
	if name == "" { // a schema of Protobuf describes a file; its errors name the message
		return fmt.Errorf("%w: %w", envelope.ErrPayload, err)
	}
	return fmt.Errorf("%w: %s: %w", envelope.ErrPayload, name, err)
}

// unquoted returns a decoder's error without values of the payload: errors are logged, and payloads hold personal data.
func unquoted(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(quoted.ReplaceAllStringFunc(err.Error(), func(found string) string {
		switch {
		case strings.HasPrefix(found, "value "):
			return "value …"
		case strings.HasPrefix(found, `"`):
			return "…"
		}
		return found // a name from the schema
	}))
}

// quoted matches values of the payload in the decoder's errors, and also names from the schema, so that unquoted can keep
// these.
var quoted = regexp.MustCompile(`(?:record|field|kind|type) "[^"]*"|"(?:[^"\\]|\\.)*"|value [-+0-9.]\S*`)
