// Package personalpb has the option of Protobuf fields that package schemas/personal reads: (troupe.personal).
package personalpb

import _ "embed"

//go:generate protoc -I . --go_out=. --go_opt=module=github.com/troupe-go/troupe/schemas/protobuf/personalpb troupe/personal.proto

// Path is the path by which .proto files import the option.
const Path = "troupe/personal.proto"

// Text is the file at Path.
//
//go:embed troupe/personal.proto
var Text string
