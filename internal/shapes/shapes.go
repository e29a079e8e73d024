// Package shapes reads the fields of messages from their schemas, as expressions of sagas see them.
package shapes

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/avro"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/expr"
)

// Avro returns the shape that the values of an Avro record have in expressions.
func Avro(text string) (*expr.Shape, error) {
	t, err := avsc.Parse(text)
	if err != nil {
		return nil, err
	}
	return avroShapes{t, make(map[*avro.SchemaNode]*expr.Shape)}.of(t.Root), nil
}

type avroShapes struct {
	avsc.Tree
	records map[*avro.SchemaNode]*expr.Shape
}

func (a avroShapes) of(n *avro.SchemaNode) *expr.Shape {
	n = a.Follow(n)
	switch avsc.KindOf(n) {
	case "record":
		return a.record(n)
	case "array":
		return &expr.Shape{Elements: a.of(n.Items)}
	case "map":
		return &expr.Shape{Values: a.of(n.Values)}
	case "union":
		return a.union(n)
	case "boolean":
		return &expr.Shape{Type: expr.Bool}
	case "string", "enum":
		return &expr.Shape{Type: expr.String}
	case "int", "long":
		return &expr.Shape{Type: expr.Int}
	case "float", "double":
		return &expr.Shape{Type: expr.Double}
	}
	return &expr.Shape{}
}

func (a avroShapes) record(n *avro.SchemaNode) *expr.Shape {
	s := a.records[n]
	if s != nil {
		return s
	}
	s = &expr.Shape{Fields: make(map[string]*expr.Shape)}
	a.records[n] = s // before its fields: a record may contain itself
	for i := range n.Fields {
		f := &n.Fields[i]
		s.Fields[f.Name] = a.of(&f.Type)
		if !f.HasDefault {
			s.Required = append(s.Required, f.Name)
		}
	}
	return s
}

// union returns the parts of the one branch besides null; a value of several branches may be any.
func (a avroShapes) union(n *avro.SchemaNode) *expr.Shape {
	var some []*avro.SchemaNode
	for i := range n.Branches {
		if n.Branches[i].Type != "null" {
			some = append(some, &n.Branches[i])
		}
	}
	if len(some) != 1 {
		return &expr.Shape{}
	}
	return nullable(a.of(some[0]))
}

// nullable returns the shape of a value that is of shape s or null.
func nullable(s *expr.Shape) *expr.Shape {
	of := *s
	of.Null = true
	return &of
}

// Protobuf returns the shape that the values of a message of Protobuf have in expressions.
func Protobuf(of protoreflect.MessageDescriptor) *expr.Shape {
	return protobufShapes{}.of(of)
}

type protobufShapes map[protoreflect.FullName]*expr.Shape

func (p protobufShapes) of(m protoreflect.MessageDescriptor) *expr.Shape {
	if s := p[m.FullName()]; s != nil {
		return s
	}
	if strings.HasPrefix(string(m.FullName()), "google.protobuf.") { // their JSON differs from the message
		return &expr.Shape{}
	}
	s := &expr.Shape{Fields: make(map[string]*expr.Shape)}
	p[m.FullName()] = s
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		switch {
		case f.IsMap():
			s.Fields[string(f.Name())] = &expr.Shape{Values: p.value(f.MapValue())}
		case f.IsList():
			s.Fields[string(f.Name())] = &expr.Shape{Elements: p.value(f)}
		case f.HasPresence():
			s.Fields[string(f.Name())] = nullable(p.value(f))
		default:
			s.Fields[string(f.Name())] = p.value(f)
		}
	}
	return s
}

func (p protobufShapes) value(f protoreflect.FieldDescriptor) *expr.Shape {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return p.of(f.Message())
	case protoreflect.StringKind, protoreflect.BytesKind:
		return &expr.Shape{Type: expr.String}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return &expr.Shape{Type: expr.Double}
	case protoreflect.BoolKind:
		return &expr.Shape{Type: expr.Bool}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return &expr.Shape{Type: expr.Int}
	}
	return &expr.Shape{} // an enum may be a name or a number, and a uint64 too large
}

// JSON returns the shape of the values of a JSON Schema. An object has the fields that the schema names, and more only if it says so,
// by additionalProperties or patternProperties.
func JSON(text string) (*expr.Shape, error) {
	root, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	const address = "https://registry.invalid/"
	c := jsonschema.NewCompiler()
	c.UseLoader(noImports{})
	if err := c.AddResource(address, root); err != nil {
		return nil, err
	}
	s, err := c.Compile(address)
	if err != nil {
		return nil, err
	}
	return jsonShapes{}.of(s), nil
}

type noImports struct{}

func (noImports) Load(string) (any, error) {
	return nil, errors.New("a reference leaves the schema")
}

type jsonShapes map[*jsonschema.Schema]*expr.Shape

func (j jsonShapes) of(s *jsonschema.Schema) *expr.Shape {
	if known := j[s]; known != nil {
		return known
	}
	shape := &expr.Shape{}
	j[s] = shape
	p := jsonParts{fields: make(map[string][]*jsonschema.Schema)}
	p.add(s, true)
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		if p.open {
			break
		}
		if shape.Fields == nil {
			shape.Fields, shape.Required = make(map[string]*expr.Shape), p.required
		}
		shape.Fields[name] = &expr.Shape{} // where alternatives say different things
		if of := p.fields[name]; len(of) == 1 {
			field := *j.of(of[0])
			field.Absent = !slices.Contains(p.required, name)
			shape.Fields[name] = &field
		}
	}
	switch {
	case len(p.fields) > 0 || len(p.seen) > 2:
	case len(p.items) == 1 && len(p.values) == 0:
		shape.Elements = j.of(p.items[0])
	case len(p.values) == 1 && len(p.items) == 0:
		shape.Values = j.of(p.values[0])
	}
	if p.plain != nil && p.plain.Types != nil {
		types := p.plain.Types.ToStrings()
		if k := slices.Index(types, "null"); k >= 0 {
			types, shape.Null = slices.Delete(types, k, k+1), true
		}
		switch {
		case len(types) != 1:
		case types[0] == "string":
			shape.Type = expr.String
		case types[0] == "boolean":
			shape.Type = expr.Bool
		case types[0] == "integer":
			shape.Type = expr.Int
		case types[0] == "number":
			shape.Number = true
		}
	}
	return shape
}

// jsonParts collects what a schema, and the schemas in it that apply to the same value, say.
type jsonParts struct {
	fields   map[string][]*jsonschema.Schema
	required []string
	items    []*jsonschema.Schema
	values   []*jsonschema.Schema // of an object with any names
	open     bool                 // there may be fields that no schema names
	plain    *jsonschema.Schema   // the one that applies, if it is one only
	seen     []*jsonschema.Schema
}

func (p *jsonParts) add(s *jsonschema.Schema, always bool) {
	if s == nil || slices.Contains(p.seen, s) {
		return
	}
	p.seen = append(p.seen, s)
	parts := slices.Concat(s.AnyOf, s.OneOf, []*jsonschema.Schema{s.If, s.Then, s.Else}, slices.Collect(maps.Values(s.DependentSchemas)))
	combined := slices.ContainsFunc(parts, func(of *jsonschema.Schema) bool { return of != nil }) || len(s.AllOf) > 0 || s.Not != nil
	if p.plain = nil; !combined && s.Ref == nil && always && len(p.seen) <= 2 {
		p.plain = s // after a reference too
	}
	for name, of := range s.Properties {
		p.fields[name] = append(p.fields[name], of)
	}
	switch of := s.AdditionalProperties.(type) {
	case bool:
		p.open = p.open || of
	case *jsonschema.Schema:
		p.open, p.values = true, append(p.values, of)
	}
	if of := s.UnevaluatedProperties; of != nil && (of.Bool == nil || *of.Bool) {
		p.open = true
	}
	p.open = p.open || len(s.PatternProperties) > 0 || s.DynamicRef != nil || s.RecursiveRef != nil || len(s.Dependencies) > 0
	if of, is := s.Items.(*jsonschema.Schema); is {
		p.items = append(p.items, of)
	}
	if s.Items2020 != nil && len(s.PrefixItems) == 0 {
		p.items = append(p.items, s.Items2020)
	}
	if always {
		p.required = append(p.required, s.Required...)
	}
	p.add(s.Ref, always)
	for _, of := range s.AllOf {
		p.add(of, always)
	}
	for _, of := range parts {
		p.add(of, false)
	}
}
