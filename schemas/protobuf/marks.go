package protobuf

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/schemas/protobuf/personalpb"
)

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
		case personalpb.MarkOf(f) != personalpb.MarkOf(own):
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
