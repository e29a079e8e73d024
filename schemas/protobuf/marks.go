package protobuf

import (
	_ "embed" // personal.proto

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/internal/protomark"
)

//go:generate protoc -I . --go_out=. --go_opt=module=github.com/troupe-go/troupe/schemas/protobuf troupe/personal.proto

// personalPath is the path by which .proto files import the option (troupe.personal), and personalText is the file there.
const personalPath = "troupe/personal.proto"

//go:embed troupe/personal.proto
var personalText string

// otherMark returns the name of a field that is marked as personal otherwise in a message's file than in its generated code, or "". It looks
// into the messages of fields too. Package schemas/personal reads the marks of the code: it would not encrypt a field whose mark is only in
// the file.
func otherMark(file, code protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) protoreflect.FullName {
	if seen[file.FullName()] {
		return ""
	}
	seen[file.FullName()] = true
	for i := range file.Fields().Len() {
		f := file.Fields().Get(i)
		own := code.Fields().ByNumber(f.Number())
		switch {
		case own == nil:
			continue
		case protomark.Of(f) != protomark.Of(own):
			return f.FullName()
		case f.Message() == nil || own.Message() == nil:
			continue
		}
		if name := otherMark(f.Message(), own.Message(), seen); name != "" {
			return name
		}
	}
	return ""
}
