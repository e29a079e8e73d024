// Package payload has the interfaces by which package schemas uses a payload format besides Avro. schemas/protobuf and
// schemas/jsonschema implement them.
package payload

import (
	"io/fs"
	"reflect"
)

// A Format is a payload format whose schemas are in the registry. It is safe for concurrent use.
type Format interface {
	// SchemaType returns the registry's word for the format, such as PROTOBUF.
	SchemaType() string
	// ContentType returns the content type of messages in this format.
	ContentType() string
	// Bindings returns the Go types that are bound to schemas of the format. It fails if a type does not fit its schema.
	Bindings() ([]Binding, error)
	// Compile compiles a schema of the registry. An error that wraps context.DeadlineExceeded says nothing about the schema: the next
	// payload compiles it again. After any other error all payloads of the schema are refused.
	Compile(Source) (Schema, error)
	// Declare returns the types of messages that the file at path declares.
	Declare(files fs.FS, path string) ([]Declared, error)
	// Diff returns the changes of a type from one schema to another, one line each.
	Diff(name string, from, to Source) ([]Change, error)
}

// Declared is a type of messages that a file declares.
type Declared struct {
	Name  string // also the subject
	Files []File // as Binding.Files returns them
	// Message is a protoreflect.MessageDescriptor in Protobuf, and nil in other formats. Its type is any so that services with another
	// format link no packages of Protobuf.
	Message any
}

// Change is one difference between two schemas.
type Change struct {
	Path string `json:"path"` // the field; empty for the whole
	What string `json:"what"`
}

// A Source is the text of a schema of the registry, with the texts of all schemas that it refers to, also indirectly, by the name of
// the reference.
type Source struct {
	Text    string
	Imports map[string]string
}

// Size returns the number of bytes of all texts.
func (s Source) Size() int {
	size := len(s.Text)
	for name, text := range s.Imports {
		size += len(name) + len(text)
	}
	return size
}

// A Schema converts payloads without a Go type. A body is a payload without the zero byte and the schema id of the wire format. Errors
// concern the body or the text, and may quote values.
type Schema interface {
	// ToJSON converts a body to JSON. It also returns the name of the body's type.
	ToJSON(body []byte) (name string, text []byte, err error)
	// FromJSON converts JSON to a body of the type name. If the schema has no such type it uses its only or first one.
	FromJSON(name string, text []byte) (body []byte, err error)
	// FromJSONLike converts JSON to a body of the type of another body.
	FromJSONLike(like, text []byte) (body []byte, err error)
	// Values decodes a body to Go values, each in one form that depends on its type in the schema.
	Values(body []byte) (name string, value any, err error)
	// FromValues converts the JSON of such values to a body.
	FromValues(name string, text []byte) (body []byte, err error)
}

// A Binding binds a Go type to a schema.
type Binding interface {
	// GoType returns the type without pointers.
	GoType() reflect.Type
	// Name returns the type of the messages, which is also the subject of their schema.
	Name() string
	// Files returns the schema, last, after the files that it imports, each after its own imports.
	Files() []File
	// Encode returns the body of a value, or a pointer to one.
	Encode(value any) (body []byte, err error)
	// Decode decodes a body that was written with the schema into a pointer.
	Decode(written Schema, body []byte, into any) error
	// DecodeJSON decodes JSON without the wire format into a pointer.
	DecodeJSON(text []byte, into any) error
}

// Bound is a Go type that a codec has bound to a schema.
type Bound struct {
	Name   string // the type of its messages
	GoType reflect.Type
	Format string // the content type
	Text   string // the schema, without the schemas that it imports
}

// SourceOf returns the Source of the last file.
func SourceOf(files []File) Source {
	s := Source{Imports: make(map[string]string)}
	for _, f := range files[:len(files)-1] {
		s.Imports[f.Name] = f.Text
	}
	s.Text = files[len(files)-1].Text
	return s
}

// A File is a schema's text. Other schemas refer to it by its name, which is also its subject.
type File struct {
	Name, Text string
	Imports    []string // names of other Files
}
