package personal

import (
	"fmt"
	"maps"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/envelope"
)

// Fields returns the kind of each personal field of a schema in Avro or JSON Schema, by the field's path: passengers.name is a field of the records
// in a list. It is for tools that have no Go type. It fails if a field is marked that cannot be encrypted.
func Fields(contentType, text string) (map[string]string, error) {
	var r *record
	var err error
	switch contentType {
	case envelope.Avro:
		r, err = markedAvro(text)
	case envelope.JSONSchema:
		r, err = markedJSON(text)
	default:
		return nil, fmt.Errorf("personal: payloads of type %s cannot have personal fields", contentType)
	}
	return fieldsOf(r, err)
}

// ProtobufFields is Fields for a message of Protobuf.
func ProtobufFields(of protoreflect.MessageDescriptor) (map[string]string, error) {
	return fieldsOf(markedProtobuf(of))
}

// PersonalFields returns what Fields returns, for a type of messages of the codec; nothing for a type without personal fields. CommandOf and the
// other functions of package saga call it, for the verifier of definitions.
func (c *Codec) PersonalFields(messageType string) map[string]string {
	all := make(map[string]string)
	if m := c.byName[messageType]; m != nil {
		maps.Copy(all, m.kinds)
	}
	return all
}

func fieldsOf(r *record, err error) (map[string]string, error) {
	if err == nil {
		err = r.check("", false)
	}
	if err != nil {
		return nil, fmt.Errorf("personal: %w", err)
	}
	all := make(map[string]string)
	r.collect("", all)
	return all, nil
}

func (r *record) collect(path string, all map[string]string) {
	for name, kind := range r.kinds {
		all[inPath(path, name)] = kind
	}
	for name, inner := range r.inner {
		inner.collect(inPath(path, name), all)
	}
}
