package schemas

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/payload"
)

// A Type binds a Go struct to an Avro record. Make one with Bind; New checks it.
type Type struct {
	avsc   string
	goType reflect.Type
}

// Bind binds T, a struct whose fields have avro:"name" tags, to the record that avsc describes. The record needs a namespace
// or a name that is unique in the flow: its full name is the message's type and its subject in the registry.
//
// Bind checks nothing, so that packages can bind in variables; New refuses a Type whose schema does not parse, is not a
// record, or does not fit T.
func Bind[T any](avsc string) Type {
	return Type{avsc: avsc, goType: reflect.TypeFor[T]()}
}

// A binding is a Go type and its schema, checked, with the schema's id.
type binding struct {
	name   string // full name of the record
	avsc   string
	tree   // parsed from avsc
	goType reflect.Type
	id     uint32

	// For another format than Avro. Then avsc and tree are empty.
	other  payload.Binding
	format Format
}

func (b *binding) encode(body any) (whole []byte, contentType string, err error) {
	head := appendHeader(make([]byte, 0, 128), b.id)
	if b.other == nil {
		whole, err = b.Schema.AppendEncode(head, body)
		return whole, envelope.Avro, err
	}
	rest, err := b.other.Encode(body)
	return append(head, rest...), b.format.ContentType(), err
}

func (b *binding) decodeJSON(text []byte, into any) error {
	if b.other != nil {
		return b.other.DecodeJSON(text, into)
	}
	return b.Schema.DecodeJSON(text, into)
}

func (t Type) check() (*binding, error) {
	if t.goType == nil || t.goType.Kind() != reflect.Struct {
		return nil, fmt.Errorf("bind %v: want a struct", t.goType)
	}
	parsed, err := avsc.Parse(t.avsc)
	if err != nil {
		return nil, fmt.Errorf("bind %v: %w", t.goType, err)
	}
	b := &binding{name: avsc.FullName(parsed.Root), avsc: t.avsc, tree: tree{parsed}, goType: t.goType}
	if parsed.Root.Type != "record" {
		return nil, fmt.Errorf("bind %v: the schema is of type %s, want a record", t.goType, parsed.Root.Type)
	}
	if err := fits(t.goType, parsed.Schema); err != nil {
		return nil, fmt.Errorf("bind %v to %s: %w", t.goType, b.name, err)
	}
	return b, nil
}

// fits finds errors at the start that otherwise the first message would cause. Every field of the struct must be in the
// record, since encoding silently drops one that is not. Whether every field of the record is in the struct, with a type that
// can hold it, is tried: zero bytes are a valid value of any schema whose first union branches end, and most structs' zero
// values can be encoded. A string that must not be empty can only be encoded that way, an enum only decoded, so a field is
// wrong only when both attempts fail on it.
func fits(goType reflect.Type, schema *avro.Schema) error {
	record := make(map[string]bool)
	for _, f := range schema.Root().Fields {
		record[f.Name] = true
	}
	for _, f := range reflect.VisibleFields(goType) {
		name, option, _ := strings.Cut(f.Tag.Get("avro"), ",")
		switch {
		case !f.IsExported(), name == "-", len(f.Index) > 1, f.Anonymous && name == "", option == "inline":
			continue // not written, or written through its fields
		case name == "":
			name = f.Name
		}
		if !record[name] {
			return fmt.Errorf("field %s: the record has no field %q; tag it avro:\"-\" to leave it out", f.Name, name)
		}
	}
	_, reading := schema.Decode(make([]byte, 1<<20), reflect.New(goType).Interface())
	_, writing := schema.AppendEncode(nil, reflect.Zero(goType).Interface())
	if reading != nil && writing != nil && fieldOf(reading) == fieldOf(writing) {
		return reading
	}
	return nil
}

// fieldOf returns the field that an error of the library is about.
func fieldOf(err error) string {
	if about := (*avro.SemanticError)(nil); errors.As(err, &about) {
		return about.Field
	}
	return ""
}
