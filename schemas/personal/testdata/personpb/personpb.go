// Package personpb has messages with personal fields for the tests of package personal.
package personpb

import "embed"

//go:generate protoc -I . -I ../../../protobuf --go_out=. --go_opt=paths=source_relative person.proto

// Files has the package's .proto file.
//
//go:embed *.proto
var Files embed.FS
