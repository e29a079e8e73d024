package schemas

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/payload"
	"github.com/troupe-go/troupe/internal/registry"
)

// Config configures New.
type Config struct {
	Registry *Registry     // required
	Types    []Type        // Avro types that Encode and Decode know; none are needed for ToJSON and FromJSON
	Formats  []Format      // formats besides Avro, each with the types that Encode and Decode know
	ReadOnly bool          // look up schemas and fail if one is missing; by default New registers them
	Timeout  time.Duration // how long Decode waits for the registry, which it queries only for unknown schema ids; default 5 s
}

// A Codec encodes and decodes payloads. It is safe for concurrent use.
type Codec struct {
	registry *registry.Client
	timeout  time.Duration
	byType   map[reflect.Type]*binding
	byName   map[string]*binding
	readers  *avsc.Cache[readerKey, reader]
	generics *avsc.Cache[uint32, schema]
	formats  map[string]Format // by the registry's word
}

// A Format is a payload format besides Avro: see packages schemas/protobuf and schemas/jsonschema.
type Format = payload.Format

var _ envelope.Codec = (*Codec)(nil)

// New checks every Type and registers its schema under the record's full name, or, with ReadOnly, looks it up there. After
// that Encode needs no I/O. If New fails, schemas that it registered stay registered, and a second New finds them.
//
// A Type that does not fit its schema, and a schema that the registry refuses, are permanent errors. If the registry cannot
// be reached, try again.
func New(ctx context.Context, cfg Config) (*Codec, error) {
	if cfg.Registry == nil {
		return nil, errors.New("schemas: Registry is nil: set it to the result of NewRegistry")
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("schemas: Timeout %s: want 0, for the default, or more", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	c := &Codec{
		registry: cfg.Registry.client,
		timeout:  cfg.Timeout,
		byType:   make(map[reflect.Type]*binding, len(cfg.Types)),
		byName:   make(map[string]*binding, len(cfg.Types)),
		readers:  avsc.NewCache[readerKey, reader](),
		generics: avsc.NewCache[uint32, schema](),
		formats:  make(map[string]Format, len(cfg.Formats)),
	}
	bindings, err := c.bind(cfg)
	if err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	for _, b := range bindings {
		if b.id, err = c.identify(ctx, b, cfg.ReadOnly); err != nil {
			return nil, fmt.Errorf("schemas: %s: %w", b.name, err)
		}
	}
	return c, nil
}

// bind checks all types and formats.
func (c *Codec) bind(cfg Config) (bindings []*binding, err error) {
	for _, t := range cfg.Types {
		b, err := t.check()
		if err != nil {
			return nil, err
		}
		bindings = append(bindings, b)
	}
	for _, f := range cfg.Formats {
		word := f.SchemaType()
		if c.formats[word] != nil {
			return nil, fmt.Errorf("Config.Formats has %s twice: give all its types to one", word)
		}
		c.formats[word] = f
		all, err := f.Bindings()
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			bindings = append(bindings, &binding{name: other.Name(), goType: other.GoType(), other: other, format: f})
		}
	}
	for _, b := range bindings {
		if c.byType[b.goType] != nil || c.byName[b.name] != nil {
			return nil, fmt.Errorf("bind %v to %s: one of them is bound already", b.goType, b.name)
		}
		c.byType[b.goType], c.byName[b.name] = b, b
	}
	return bindings, nil
}

// identify registers b's schema, or looks it up, and returns its id.
func (c *Codec) identify(ctx context.Context, b *binding, readOnly bool) (id uint32, err error) {
	s := sr.Schema{Schema: b.avsc}
	if b.other != nil {
		var format sr.SchemaType
		if err := format.UnmarshalText([]byte(b.format.SchemaType())); err != nil {
			return 0, err
		}
		if s, err = payload.Refer(ctx, c.registry, format, b.other.Files(), readOnly); err != nil {
			return 0, err
		}
	}
	if readOnly {
		id, _, err = c.registry.Lookup(ctx, b.name, s)
	} else {
		id, err = c.registry.Register(ctx, b.name, s)
	}
	if err != nil {
		return 0, err
	}
	if b.other != nil {
		c.registry.Keep(id, registry.Stored{Format: s.Type, Source: payload.SourceOf(b.other.Files())})
	}
	return id, nil
}

// Encode encodes a bound struct, or a pointer to one, in the wire format. A body that is not bound but names its own type
// (envelope.Typed), such as the library's own messages, is encoded as JSON. Any other body is an error. Encode does no I/O.
func (c *Codec) Encode(topic string, body any) (envelope.Encoded, error) {
	b := c.bindingOf(body)
	if b == nil {
		if _, ok := body.(envelope.Typed); ok {
			return envelope.JSONCodec{}.Encode(topic, body)
		}
		return envelope.Encoded{}, unbound(body)
	}
	payload, contentType, err := b.encode(body)
	if err != nil {
		return envelope.Encoded{}, fmt.Errorf("encode %s: %w", b.name, err)
	}
	return envelope.Encoded{Type: b.name, ContentType: contentType, Payload: payload}, nil
}

// TypeOf returns the full name of the record that body's type is bound to, or the name that an unbound body's MessageType
// returns.
func (c *Codec) TypeOf(body any) (string, error) {
	if b := c.bindingOf(body); b != nil {
		return b.name, nil
	}
	if _, ok := body.(envelope.Typed); ok {
		return envelope.JSONCodec{}.TypeOf(body)
	}
	return "", unbound(body)
}

// Bound returns the bound types with their schemas, in no order. Package schemas/personal reads the fields from it that it encrypts.
func (c *Codec) Bound() []payload.Bound {
	all := make([]payload.Bound, 0, len(c.byName))
	for _, b := range c.byName {
		bound := payload.Bound{Name: b.name, GoType: b.goType, Format: envelope.Avro, Text: b.avsc}
		if b.other != nil {
			files := b.other.Files()
			bound.Format, bound.Text = b.format.ContentType(), files[len(files)-1].Text
		}
		all = append(all, bound)
	}
	return all
}

// bindingOf returns the binding of body's type without pointers, or nil.
func (c *Codec) bindingOf(body any) *binding {
	t := reflect.TypeOf(body)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return c.byType[t]
}

func unbound(body any) error {
	return fmt.Errorf("%T is bound to no schema: add schemas.Bind[T] to Config.Types, or its format with it to Config.Formats, or give it a MessageType method to send it as JSON", body)
}
