// Package personalpb has the option of Protobuf fields that package schemas/personal reads: (troupe.personal).
package personalpb

import (
	_ "embed"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

//go:generate protoc -I . --go_out=. --go_opt=module=github.com/troupe-go/troupe/schemas/protobuf/personalpb troupe/personal.proto

// Path is the path by which .proto files import the option.
const Path = "troupe/personal.proto"

// Text is the file at Path.
//
//go:embed troupe/personal.proto
var Text string

// MarkOf returns the option of a field, or "". The options of a compiled file are read again, since they may be of a type of the
// compiler's.
func MarkOf(f protoreflect.FieldDescriptor) string {
	raw, err := proto.Marshal(f.Options())
	if err != nil || len(raw) == 0 {
		return ""
	}
	options := &descriptorpb.FieldOptions{}
	if err := proto.Unmarshal(raw, options); err != nil {
		return ""
	}
	mark, _ := proto.GetExtension(options, E_Personal).(string)
	return mark
}
