// Package orderpb has messages for the tests and examples of package protobuf.
package orderpb

import "embed"

//go:generate protoc --go_out=. --go_opt=paths=source_relative money.proto order.proto

// Files has the package's .proto files.
//
//go:embed *.proto
var Files embed.FS
