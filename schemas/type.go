package schemas

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/twmb/avro"
)

// A Type ties a Go struct to the Avro record that it is written as. Make one with Bind; New checks it.
type Type struct {
	avsc   string
	goType reflect.Type
}

// Bind ties T, a struct whose fields carry avro:"name" tags, to the record that avsc describes. The record needs a
// namespace or a name that is unique in the flow: its full name is the message's type and its subject in the registry.
//
// Nothing is checked here, so that packages can bind in variables; New refuses a Type whose schema does not parse, is no
// record, or does not fit T.
func Bind[T any](avsc string) Type {
	return Type{avsc: avsc, goType: reflect.TypeFor[T]()}
}

// A binding is a Type that was checked and has its schema id.
type binding struct {
	name   string // full name of the record
	avsc   string
	tree   // of avsc
	goType reflect.Type
	id     uint32
}

func (t Type) check() (*binding, error) {
	if t.goType == nil || t.goType.Kind() != reflect.Struct {
		return nil, fmt.Errorf("bind %v: want a struct", t.goType)
	}
	parsed, err := parseTree(t.avsc)
	if err != nil {
		return nil, fmt.Errorf("bind %v: %w", t.goType, err)
	}
	b := &binding{name: fullName(parsed.root), avsc: t.avsc, tree: parsed, goType: t.goType}
	if parsed.root.Type != "record" {
		return nil, fmt.Errorf("bind %v: the schema is of type %s, want a record", t.goType, parsed.root.Type)
	}
	if err := fits(t.goType, parsed.schema); err != nil {
		return nil, fmt.Errorf("bind %v to %s: %w", t.goType, b.name, err)
	}
	return b, nil
}

func fullName(n *avro.SchemaNode) string {
	if n.Namespace == "" || strings.Contains(n.Name, ".") {
		return n.Name
	}
	return n.Namespace + "." + n.Name
}

// namespaceOf is where names within n that have no dot belong.
func namespaceOf(n *avro.SchemaNode) string {
	full := fullName(n)
	return full[:max(0, strings.LastIndexByte(full, '.'))]
}

// fits finds at the start what would otherwise be found with the first message. Every field of the struct must be in
// the record, since encoding drops one that is not without a word. That every field of the record is in the struct, and
// of a type that can hold it, shows in use: zero bytes are a valid value of any schema whose first union branches end,
// and most structs' zero values can be written. Text that must not be empty can do only the latter, an enum only the
// former, so a field counts as wrong when both fail on it.
func fits(goType reflect.Type, schema *avro.Schema) error {
	record := make(map[string]bool)
	for _, f := range schema.Root().Fields {
		record[f.Name] = true
	}
	for _, f := range reflect.VisibleFields(goType) {
		name, option, _ := strings.Cut(f.Tag.Get("avro"), ",")
		switch {
		case !f.IsExported(), name == "-", len(f.Index) > 1, f.Anonymous && name == "", option == "inline":
			continue // not written, or written by way of its fields
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

// fieldOf is the field that an error of the library is about.
func fieldOf(err error) string {
	if about := (*avro.SemanticError)(nil); errors.As(err, &about) {
		return about.Field
	}
	return ""
}
