package saga

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/expr"
)

// CommandOf returns a Command whose body is a T, with the type name that codec gives to T. Define then checks the input: each field
// exists in T, by its avro tag or else its json tag, and the values have the types of the fields. T may be a pointer. For a message of
// Protobuf it is one, and its fields have their names in the .proto file. The JSON of the Command equals the JSON of a Command without
// T.
func CommandOf[T any](codec envelope.Decoder, hop string, input Mapping) *Command {
	of := bodyOf[T](codec)
	return &Command{Hop: hop, Type: of.name, Input: input, of: of}
}

// AnswerOf returns a with the type name of T as its event. Define then checks the fields of the event that the expressions of a read,
// as CommandOf describes.
func AnswerOf[T any](codec envelope.Decoder, a Answer) Answer {
	a.of = bodyOf[T](codec)
	a.Event = a.of.name
	return a
}

// StartOf returns s with the type name of T as its event. Define then checks the fields of the event that the expressions of s read, as
// CommandOf describes.
func StartOf[T any](codec envelope.Decoder, s Start) Start {
	s.of = bodyOf[T](codec)
	s.Event = s.of.name
	return s
}

// EmitOf returns e with the type name of T as its event. Define then checks the input, as CommandOf describes.
func EmitOf[T any](codec envelope.Decoder, e Emit) Emit {
	e.of = bodyOf[T](codec)
	e.Event = e.of.name
	return e
}

// A body describes a message by its Go type.
type body struct {
	name    string
	fields  expr.Fields
	mistake error
	// personal has the kind of each personal field, by the field's path. It is nil if the codec is not from package schemas/personal.
	personal map[string]string
}

func bodyOf[T any](codec envelope.Decoder) *body {
	b := unmarkedBodyOf[T](codec)
	if known, is := codec.(interface {
		PersonalFields(messageType string) map[string]string
	}); is && b.mistake == nil {
		b.personal = known.PersonalFields(b.name)
	}
	return b
}

// unmarkedBodyOf returns the body of T without its personal fields.
func unmarkedBodyOf[T any](codec envelope.Decoder) *body {
	t := reflect.TypeFor[T]()
	name, err := codec.TypeOf(*new(T))
	if err != nil {
		return &body{name: "unnamed", mistake: err}
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return &body{name: name, mistake: fmt.Errorf("%s is no struct: name a struct, or a pointer to one", t)}
	}
	if m, ok := reflect.New(t).Interface().(protoreflect.ProtoMessage); ok {
		return &body{name: name, fields: protobufFieldsOf(m.ProtoReflect().Descriptor())}
	}
	return &body{name: name, fields: fieldsOf(t)}
}

// protobufFieldsOf returns the fields of a message as package schemas/protobuf reads them. The type is Any for a field that may be
// null, and for an enum, whose value is a name or, without a name, a number.
func protobufFieldsOf(of protoreflect.MessageDescriptor) expr.Fields {
	fields := make(expr.Fields)
	for i := range of.Fields().Len() {
		f := of.Fields().Get(i)
		kind, known := protobufTypes[f.Kind()]
		if !known || f.IsList() || f.IsMap() || f.HasPresence() {
			kind = Any
		}
		fields[string(f.Name())] = kind
	}
	return fields
}

// protobufTypes has the kinds whose values always have one type. A uint64 that an int64 cannot hold keeps its digits.
var protobufTypes = map[protoreflect.Kind]Type{
	protoreflect.StringKind: String, protoreflect.BytesKind: String, protoreflect.BoolKind: Bool,
	protoreflect.Int32Kind: Int, protoreflect.Sint32Kind: Int, protoreflect.Sfixed32Kind: Int, protoreflect.Uint32Kind: Int, protoreflect.Fixed32Kind: Int,
	protoreflect.Int64Kind: Int, protoreflect.Sint64Kind: Int, protoreflect.Sfixed64Kind: Int,
}

// fieldsOf returns the fields of a message of Go type t. The type is Any for a field that has a marshaler of its own, since the
// marshaler decides the JSON.
func fieldsOf(t reflect.Type) expr.Fields {
	fields := make(expr.Fields)
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("avro")
		if !tagged {
			tag, tagged = f.Tag.Lookup("json")
		}
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && !tagged && f.Type.Kind() == reflect.Struct:
			maps.Copy(fields, fieldsOf(f.Type))
			continue
		case !f.IsExported() || tag == "-":
			continue
		case name == "":
			name = f.Name
		}
		fields[name] = typeOf(f.Type)
	}
	return fields
}

func typeOf(t reflect.Type) Type {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return Any
	}
	switch t.Kind() {
	case reflect.String:
		return String
	case reflect.Bool:
		return Bool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return Int
	}
	return Any
}

// bodies checks the messages of the definition that have a Go type. It is called if the definition has no other mistakes. It does not
// change the compiled definition, which depends on the JSON only.
func (c *compiler) bodies() {
	s := c.d.spec
	for i, st := range s.Start {
		c.reads(fmt.Sprintf("start[%d]", i), st.of, nil, Answer{When: st.When, Set: st.Set})
	}
	data := map[string]expr.Fields{"data": expr.Fields(s.Data), "saga": sagaFields}
	answers := func(path string, as []Answer) {
		for i, a := range as {
			c.reads(fmt.Sprintf("%s[%d]", path, i), a.of, data, a)
		}
	}
	emits := func(path string, env *expr.Env, es []Emit) {
		for i, e := range es {
			c.gives(fmt.Sprintf("%s[%d].input", path, i), e.of, env, e.Input)
		}
	}
	for i, st := range s.Steps {
		path := fmt.Sprintf("steps[%d]", i)
		leave := c.enter(path, st.ForEach)
		if st.Command != nil {
			c.gives(path+".command.input", st.Command.of, c.data, st.Command.Input)
		}
		answers(path+".success", st.Success)
		answers(path+".failure", st.Failure)
		c.formReads(path, i, data)
		if comp := st.Compensation; comp != nil {
			if comp.Command != nil {
				c.gives(path+".compensation.command.input", comp.Command.of, c.data, comp.Command.Input)
			}
			answers(path+".compensation.success", comp.Success)
		}
		leave()
	}
	for i, dl := range s.Deadlines {
		emits(fmt.Sprintf("deadlines[%d].emit", i), c.due, dl.Emit)
	}
	for i, e := range s.Ends {
		emits(fmt.Sprintf("ends[%d].emit", i), c.data, e.Emit)
	}
	if s.Cancel != nil {
		answers("cancel.events", s.Cancel.Events)
		emits("cancel.refused", c.data, s.Cancel.Refused)
	}
	emits("completed", c.data, s.Completed)
	emits("compensated", c.data, s.Compensated)
}

// checkBody reports whether a message was declared with a Go type whose fields can be checked. It also records the mistake of a Go type
// that is no struct, and the personal fields of the message.
func (c *compiler) checkBody(path string, of *body) bool {
	if of != nil && of.mistake != nil {
		c.wrong(path, "%s", of.mistake)
	}
	if of != nil && of.personal != nil {
		if c.d.personal == nil {
			c.d.personal = make(map[string]map[string]string)
		}
		c.d.personal[of.name] = of.personal
	}
	return of != nil && of.mistake == nil
}

// gives checks the fields that a mapping sets in a message.
func (c *compiler) gives(path string, of *body, env *expr.Env, m Mapping) {
	if !c.checkBody(path, of) {
		return
	}
	for _, name := range sortedKeys(m) {
		want, has := of.fields[name]
		if !has {
			c.wrong(path+"."+name, "%s has no field %q", of.name, name)
			continue
		}
		c.expr(env, path+"."+name, m[name], want)
	}
}

// reads checks the expressions of an answer: which fields of the event they read, and how. The expressions may also read objects.
func (c *compiler) reads(path string, of *body, objects map[string]expr.Fields, a Answer) {
	if !c.checkBody(path, of) {
		return
	}
	all := map[string]expr.Fields{"event": of.fields}
	maps.Copy(all, objects)
	env, err := expr.NewEnv(all)
	if err == nil && c.each != nil {
		env, err = env.With(map[string]Type{c.each.As: Any, indexName: Int})
	}
	if err != nil {
		c.wrong(path, "%s", err)
		return
	}
	c.condition(env, path+".when", a.When)
	for _, name := range sortedKeys(a.Set) {
		c.expr(env, path+".set."+name, a.Set[name], c.d.spec.Data[name])
	}
	if a.Reason != "" {
		c.expr(env, path+".reason", a.Reason, String)
	}
}
