package protobuf

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

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
		case markOf(f) != markOf(own):
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

// markOf returns the option personal of a field. The options of a compiled file are read again, since they may be of a type of the
// compiler's.
func markOf(f protoreflect.FieldDescriptor) string {
	raw, err := proto.Marshal(f.Options())
	if err != nil || len(raw) == 0 {
		return ""
	}
	options := &descriptorpb.FieldOptions{}
	if err := proto.Unmarshal(raw, options); err != nil {
		return ""
	}
	mark, _ := proto.GetExtension(options, personalpb.E_Personal).(string)
	return mark
}
