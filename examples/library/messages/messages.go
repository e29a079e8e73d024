// Package messages has the messages that the library reads and writes, which protoc generates from the .proto files.
// go generate needs protoc and its plugin, of the version in go.mod: go install google.golang.org/protobuf/cmd/protoc-gen-go
package messages

import "embed"

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go_opt=Mlibrary_loan.proto=github.com/troupe-go/troupe/examples/library/messages library_loan.proto

// Files has the .proto files, for the schema registry.
//
//go:embed *.proto
var Files embed.FS
