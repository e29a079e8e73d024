package protobuf

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/payload"
)

// maxLevels is the number of messages that may be within each other in a payload.
const maxLevels = 200

// A format implements payload.Format.
type format struct {
	files    fs.FS
	messages []proto.Message
}

// New returns the format for schemas.Config, with the messages that a Codec encodes and decodes as Go types. files has their .proto
// files, at the paths that the generated code names, and all files that these import, except the standard ones. Without messages
// files may be nil: tools convert any payload by the registry's schemas.
//
// New checks nothing, so that packages can call it in variables; schemas.New does. The format may be used by several Codecs.
func New(files fs.FS, messages ...proto.Message) payload.Format {
	return &format{files, messages}
}

func (*format) SchemaType() string { return "PROTOBUF" }

func (*format) ContentType() string { return envelope.Protobuf }

func (*format) Compile(s payload.Source) (payload.Schema, error) {
	file, err := compile(s)
	if err != nil {
		return nil, err
	}
	return newSchema(file)
}

func (f *format) Bindings() (all []payload.Binding, err error) {
	for _, m := range f.messages {
		b, err := f.bind(m)
		if err != nil {
			return nil, fmt.Errorf("bind %T: %w", m, err)
		}
		all = append(all, b)
	}
	return all, nil
}

func (f *format) bind(m proto.Message) (*binding, error) {
	if m == nil || reflect.TypeOf(m).Kind() != reflect.Pointer {
		return nil, errors.New("want a generated message")
	}
	message := m.ProtoReflect().Descriptor()
	b := &binding{goType: reflect.TypeOf(m).Elem(), message: message}
	if f.files == nil {
		return nil, fmt.Errorf("New has no files: embed %s", message.ParentFile().Path())
	}
	files, err := collect(f.files, message.ParentFile().Path(), nil)
	if err != nil {
		return nil, err
	}
	b.files = files
	file, err := compile(payload.SourceOf(files))
	if err != nil {
		return nil, err
	}
	found, indexes := find(file.Messages(), message.FullName(), nil)
	if found == nil {
		return nil, fmt.Errorf("%s has no message %s: generate the code again", message.ParentFile().Path(), message.FullName())
	}
	if !proto.Equal(bare(found), bare(message)) {
		return nil, fmt.Errorf("the code of %s was generated from another version of %s: generate it again", message.FullName(),
			message.ParentFile().Path())
	}
	if name := otherMark(found, message, make(map[protoreflect.FullName]bool)); name != "" {
		return nil, fmt.Errorf("the code of %s was generated before %s got its present option (troupe.personal): generate it again", message.FullName(), name)
	}
	b.indexes = appendIndexes(nil, indexes)
	return b, nil
}

// bare returns a message's declaration without options, which decide nothing about the bytes that the descriptor does not say too.
func bare(m protoreflect.MessageDescriptor) *descriptorpb.DescriptorProto {
	d := protodesc.ToDescriptorProto(m)
	strip(d)
	return d
}

func strip(d *descriptorpb.DescriptorProto) {
	d.ReservedRange, d.ReservedName = nil, nil
	if d.Options != nil {
		d.Options = &descriptorpb.MessageOptions{MapEntry: d.Options.MapEntry}
	}
	for _, f := range d.Field {
		f.JsonName = nil
		if f.Options != nil {
			f.Options = &descriptorpb.FieldOptions{Packed: f.Options.Packed}
		}
		if proto.Size(f.GetOptions()) == 0 {
			f.Options = nil
		}
	}
	for _, o := range d.OneofDecl {
		o.Options = nil
	}
	for _, e := range d.EnumType {
		e.Options = nil
		for _, v := range e.Value {
			v.Options = nil
		}
	}
	for _, inner := range d.NestedType {
		strip(inner)
	}
}

// find returns the message with a name, and its place in the file.
func find(in protoreflect.MessageDescriptors, name protoreflect.FullName, above []int) (protoreflect.MessageDescriptor, []int) {
	for i := range in.Len() {
		at := append(slices.Clone(above), i)
		if m := in.Get(i); m.FullName() == name {
			return m, at
		} else if inner, place := find(m.Messages(), name, at); inner != nil {
			return inner, place
		}
	}
	return nil, nil
}

// A binding implements payload.Binding.
type binding struct {
	goType  reflect.Type
	message protoreflect.MessageDescriptor
	files   []payload.File
	indexes []byte
}

func (b *binding) GoType() reflect.Type  { return b.goType }
func (b *binding) Name() string          { return string(b.message.FullName()) }
func (b *binding) Files() []payload.File { return b.files }

func (b *binding) Encode(value any) ([]byte, error) {
	m, ok := value.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a Protobuf message: pass a pointer to a generated one", value)
	}
	return proto.MarshalOptions{}.MarshalAppend(slices.Clone(b.indexes), m)
}

func (b *binding) Decode(written payload.Schema, body []byte, into any) error {
	of, rest, err := written.(*schema).cut(body)
	if err != nil {
		return err
	}
	if of.FullName() != b.message.FullName() {
		return fmt.Errorf("it is a message of type %s", of.FullName())
	}
	m, ok := into.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a Protobuf message: pass a pointer to a generated one", into)
	}
	if err := checkValues(b.message, rest, protoregistry.GlobalTypes, false); err != nil {
		return err
	}
	return proto.UnmarshalOptions{RecursionLimit: maxLevels}.Unmarshal(rest, m)
}

func (b *binding) DecodeJSON(text []byte, into any) error {
	m, ok := into.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a Protobuf message: pass a pointer to a generated one", into)
	}
	if err := checkAny(text); err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: maxLevels}.Unmarshal(text, m)
}
