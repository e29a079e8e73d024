// Package protobuf is the payload format of Protocol Buffers with a schema registry, for package schemas. A payload has the wire
// format of Confluent's registry: a zero byte, the id of the schema in four bytes, the indexes of the message in its file, then
// Protobuf binary.
//
//	//go:embed *.proto
//	var files embed.FS
//
//	codec, err := schemas.New(ctx, schemas.Config{
//		Registry: registry,
//		Formats:  []schemas.Format{protobuf.New(files, &orderpb.PaymentCharged{}, &orderpb.PaymentRefused{})},
//	})
//
// A message's type is its full name, such as troupe.order.PaymentCharged. The .proto file of a message is registered under that name
// as the subject, so two messages of a file have two subjects with one schema. A file that it imports is registered under its path. The
// standard imports (google/protobuf/timestamp.proto and so on) are not registered.
//
// Failures:
//
//	no .proto file at the path that the generated code names   schemas.New fails
//	generated code of another version of the file              schemas.New fails: generate it again
//	a payload of another message than the bound one            envelope.ErrPayload
//	indexes that the schema does not have, bytes cut short     envelope.ErrPayload
//	a schema that does not compile, or above a limit           envelope.ErrPayload, with the id
//	a schema that is not compiled after 5 s                    another error: the message is tried again
//
// Decode reads a payload by the bound message, as Protobuf does: fields that only one of the two versions has are kept as unknown, or
// stay empty. JSON is Protobuf's own, with the names of the .proto file instead of camel case; both are read.
//
// Limits on a schema: 1 MiB, 100 schemas that it refers to, 20,000 fields and types, 50 levels of
// braces. Limits on a payload, as in package schemas: 200 levels; 1,048,576 values, for which each message counts with all fields of its
// type. The values in a google.protobuf.Any count once more.
//
// The option (troupe.personal) of troupe/personal.proto, in the folder of this package, marks fields for package schemas/personal. The
// generated code of a file that imports it imports this package.
//
// Not supported: groups and extensions are neither shown nor edited as JSON; editions are as far as protocompile knows them.
package protobuf
