// Package protomark reads the option (troupe.personal) of Protobuf fields, which package schemas/protobuf declares.
package protomark

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// number is the number of the option in troupe/personal.proto.
const number = 51607

// Of returns the option of a field, or "". It reads the options' bytes, since the options of a compiled file may be of a type of the compiler's.
func Of(f protoreflect.FieldDescriptor) (mark string) {
	options, err := proto.Marshal(f.Options())
	if err != nil {
		return ""
	}
	for len(options) > 0 {
		is, typ, n := protowire.ConsumeTag(options)
		if n < 0 {
			return ""
		}
		length := protowire.ConsumeFieldValue(is, typ, options[n:])
		if length < 0 {
			return ""
		}
		if is == number && typ == protowire.BytesType {
			text, _ := protowire.ConsumeString(options[n:])
			mark = text
		}
		options = options[n+length:]
	}
	return mark
}
