package protobuf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// A schema implements payload.Schema.
type schema struct {
	file  protoreflect.FileDescriptor
	types *dynamicpb.Types // of the file and all that it imports: an Any may name one of them
}

func newSchema(file protoreflect.FileDescriptor) (*schema, error) {
	files := new(protoregistry.Files)
	return &schema{file, dynamicpb.NewTypes(files)}, register(files, file)
}

func register(files *protoregistry.Files, f protoreflect.FileDescriptor) error {
	if _, err := files.FindFileByPath(f.Path()); err == nil {
		return nil
	}
	for i := range f.Imports().Len() {
		if err := register(files, f.Imports().Get(i).FileDescriptor); err != nil {
			return err
		}
	}
	return files.RegisterFile(f)
}

// appendIndexes appends the place of a message in its file: a count and that many numbers, or only a zero for the first message. Source:
// docs.confluent.io, "Formats, Serializers, and Deserializers", wire format.
func appendIndexes(b []byte, indexes []int) []byte {
	if len(indexes) == 1 && indexes[0] == 0 {
		return append(b, 0)
	}
	b = binary.AppendVarint(b, int64(len(indexes)))
	for _, i := range indexes {
		b = binary.AppendVarint(b, int64(i))
	}
	return b
}

var errShort = errors.New("cut short in the indexes of the message")

// cut returns the message that a body's indexes name, and the rest of the body.
func (s *schema) cut(body []byte) (protoreflect.MessageDescriptor, []byte, error) {
	next := func() (int64, error) {
		n, size := binary.Varint(body)
		if size <= 0 {
			return 0, errShort
		}
		body = body[size:]
		return n, nil
	}
	count, err := next()
	if err != nil {
		return nil, nil, err
	}
	if count < 0 || count > maxBraces {
		return nil, nil, fmt.Errorf("a message within %d others, and a schema has at most %d levels", count, maxBraces)
	}
	messages := s.file.Messages()
	if count == 0 {
		return messages.Get(0), body, nil
	}
	var found protoreflect.MessageDescriptor
	for range count {
		i, err := next()
		if err != nil {
			return nil, nil, err
		}
		if i < 0 || i >= int64(messages.Len()) {
			return nil, nil, fmt.Errorf("index %d of a message, and the schema has %d there", i, messages.Len())
		}
		found = messages.Get(int(i))
		messages = found.Messages()
	}
	return found, body, nil
}

// read decodes a body.
func (s *schema) read(body []byte) (*dynamicpb.Message, error) {
	of, rest, err := s.cut(body)
	if err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(of)
	if err := checkValues(of, rest, s.types, true); err != nil {
		return m, err
	}
	return m, proto.UnmarshalOptions{RecursionLimit: maxLevels, Resolver: s.types}.Unmarshal(rest, m)
}

// message returns the message with a name, else the first.
func (s *schema) message(name string) (protoreflect.MessageDescriptor, []int) {
	if m, at := find(s.file.Messages(), protoreflect.FullName(name), nil); m != nil {
		return m, at
	}
	return s.file.Messages().Get(0), []int{0}
}

func (s *schema) ToJSON(body []byte) (name string, text []byte, err error) {
	m, err := s.read(body)
	if m != nil {
		name = string(m.Descriptor().FullName())
	}
	if err != nil {
		return name, nil, err
	}
	text, err = s.json(m)
	return name, text, err
}

// json returns m as JSON without spaces: the library adds some at random.
func (s *schema) json(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true, Resolver: s.types}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

func (s *schema) FromJSON(name string, text []byte) ([]byte, error) {
	of, at := s.message(name)
	return s.write(of, appendIndexes(nil, at), text)
}

func (s *schema) FromJSONLike(like, text []byte) ([]byte, error) {
	of, rest, err := s.cut(like)
	if err != nil {
		return nil, err
	}
	old, err := s.read(like)
	if err == nil && hasUnknown(old) {
		return nil, errors.New("the message has fields that its schema does not know, and an edit would lose them")
	}
	payload, err := s.write(of, like[:len(like)-len(rest):len(like)-len(rest)], text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", of.FullName(), err)
	}
	return payload, nil
}

func (s *schema) write(of protoreflect.MessageDescriptor, indexes, text []byte) ([]byte, error) {
	if err := checkAny(text); err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(of)
	if err := (protojson.UnmarshalOptions{RecursionLimit: maxLevels, Resolver: s.types}).Unmarshal(text, m); err != nil {
		// The library separates its prefix with a space or a no-break space, at random.
		return nil, errors.New(strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0"))
	}
	body, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(indexes, m)
	if err != nil {
		return nil, err
	}
	return body, checkValues(of, body[len(indexes):], s.types, true)
}

// hasUnknown reports whether a message, or one within it, has fields that the schema does not know.
func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, inner protoreflect.Value) bool {
					found = found || hasUnknown(inner.Message())
					return !found
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				found = found || hasUnknown(v.List().Get(i).Message())
			}
		default:
			found = hasUnknown(v.Message())
		}
		return !found
	})
	return found
}
