// Package jsonschema is the payload format of JSON with a JSON Schema in the registry, for package schemas. A payload has the wire
// format of Confluent's registry: a zero byte, the id of the schema in four bytes, then JSON.
//
//	//go:embed payment-charged.schema.json
//	var paymentCharged string
//
//	codec, err := schemas.New(ctx, schemas.Config{
//		Registry: registry,
//		Formats:  []schemas.Format{jsonschema.New(jsonschema.Bind[PaymentCharged](paymentCharged))},
//	})
//
// A message's type is the title of its schema, such as shop.PaymentCharged, and so is its subject.
//
// A value is checked by its schema when it is written, and by the writer's schema when it is read. Its Go type is read by encoding/json:
// fields that only the writer has are ignored, and fields that only the reader has keep their values.
//
// Failures:
//
//	a schema without a title, or that does not compile     schemas.New fails
//	a value that does not fit its schema                   Encode fails
//	a payload that does not fit the writer's schema        envelope.ErrPayload, with the paths of the first mistakes if it has at most 32 KiB
//	a schema of the registry that does not compile         envelope.ErrPayload, with the id
//
// Limits: a schema of 1 MiB; 200 levels of JSON; 1,048,576 values; numbers of at most 1,100 characters and exponents of at
// most 400; 100,000 parts of the schema that are applied to one payload, and one for each of its bytes, since alternatives within
// alternatives multiply; 4,194,304 alternatives (allOf, anyOf, oneOf) that are tried for one payload, and one for each of its bytes;
// 100,000 steps of all regular expressions of a schema, and 268,435,456 steps that are applied to the bytes of one payload's texts.
// A $ref outside of the schema is looked for among its references in the registry only, never in a file or on the network.
//
// Not supported: references of a schema that is bound. Formats ("format": "date-time") are not checked, as in the registry's own
// serializers.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/payload"
)

// A Type binds a Go type to a schema. Make one with Bind.
type Type struct {
	goType reflect.Type
	text   string
}

// Bind binds T, which encoding/json reads and writes, to a JSON Schema with a title. It checks nothing, so that packages can bind in
// variables; schemas.New does.
func Bind[T any](schema string) Type { return Type{reflect.TypeFor[T](), schema} }

var errNoTitle = errors.New("the schema has no title, which is the type of the messages")

// format implements payload.Format.
type format []Type

// New returns the format for schemas.Config, with the types that a Codec encodes and decodes. Tools need none: they convert any
// payload by the registry's schemas. The format may be used by several Codecs.
func New(types ...Type) payload.Format { return format(types) }

func (format) SchemaType() string { return "JSON" }

func (format) ContentType() string { return envelope.JSONSchema }

func (format) Compile(s payload.Source) (payload.Schema, error) { return compile(s) }

func (f format) Bindings() (all []payload.Binding, err error) {
	for _, t := range f {
		s, err := compile(payload.Source{Text: t.text})
		if err == nil && s.title == "" {
			err = errNoTitle
		}
		if err != nil {
			return nil, fmt.Errorf("bind %v: %w", t.goType, err)
		}
		all = append(all, &binding{t, s})
	}
	return all, nil
}

// Declare returns the one type of a schema, named by its title.
func (format) Declare(files fs.FS, path string) ([]payload.Declared, error) {
	text, err := fs.ReadFile(files, path)
	if err != nil {
		return nil, err
	}
	s, err := compile(payload.Source{Text: string(text)})
	if err == nil && s.title == "" {
		err = errNoTitle
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return []payload.Declared{{Name: s.title, Files: []payload.File{{Name: s.title, Text: string(text)}}}}, nil
}

// Diff compares the schemas as documents, keyword by keyword.
func (format) Diff(_ string, from, to payload.Source) (changes []payload.Change, err error) {
	var of [2]any
	for i, s := range []payload.Source{from, to} {
		if of[i], err = read([]byte(s.Text)); err != nil {
			return nil, err
		}
	}
	diff("", of[0], of[1], &changes)
	return changes, nil
}

func diff(path string, from, to any, changes *[]payload.Change) {
	old, wasObject := from.(map[string]any)
	now, isObject := to.(map[string]any)
	if !wasObject || !isObject {
		if was, is := short(from), short(to); !reflect.DeepEqual(from, to) {
			*changes = append(*changes, payload.Change{Path: path, What: "was " + was + ", is " + is})
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if was, there := old[name]; there {
			diff(at, was, now[name], changes)
		} else {
			*changes = append(*changes, payload.Change{Path: at, What: "added, " + short(now[name])})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, there := now[name]; !there {
			*changes = append(*changes, payload.Change{Path: strings.TrimPrefix(path+"."+name, "."), What: "removed, was " + short(old[name])})
		}
	}
}

// short returns a part of a schema as text of at most 60 bytes.
func short(v any) string {
	text, _ := json.Marshal(v)
	if len(text) > 60 {
		return strings.ToValidUTF8(string(text[:60]), "") + "…"
	}
	return string(text)
}

// A binding implements payload.Binding.
type binding struct {
	Type
	schema *schema
}

func (b *binding) GoType() reflect.Type  { return b.goType }
func (b *binding) Name() string          { return b.schema.title }
func (b *binding) Files() []payload.File { return []payload.File{{Name: b.schema.title, Text: b.text}} }

func (b *binding) Encode(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	_, err = b.schema.check(text)
	return text, err
}

func (b *binding) Decode(written payload.Schema, body []byte, into any) error {
	if _, err := written.(*schema).check(body); err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func (b *binding) DecodeJSON(text []byte, into any) error { return b.Decode(b.schema, text, into) }

func (s *schema) ToJSON(body []byte) (name string, text []byte, err error) {
	_, err = read(body)
	return s.name(), body, err
}

func (s *schema) FromJSON(_ string, text []byte) ([]byte, error) {
	if _, err := s.check(text); err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, text)
	return compact.Bytes(), err
}

func (s *schema) FromJSONLike(_, text []byte) ([]byte, error) { return s.FromJSON("", text) }

func (s *schema) Values(body []byte) (name string, value any, err error) {
	value, err = s.check(body)
	return s.name(), value, err
}

func (s *schema) FromValues(_ string, text []byte) ([]byte, error) { return s.FromJSON("", text) }
