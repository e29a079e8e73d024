// Package schemas encodes and decodes payloads that have a schema in a registry, so that a service can read messages that other versions of
// a service wrote. A payload is in the wire format of Confluent's registry: a zero byte, the id of the writer's schema in four bytes,
// big-endian, then Avro binary, or the message in another format (packages schemas/protobuf and schemas/jsonschema).
//
// Outboxes and participants use a Codec, the relay a JSONEncoder. If the Go type is known (handlers, writers), twmb/avro
// encodes structs, and resolves the writer's schema to the reader's. If it is not (dead letters shown and edited, plain JSON
// rows), goavro converts payloads to JSON and back. A test checks that both produce the same bytes for each of this project's
// schemas.
//
// A message's type is the full name of its record, and its schema is registered under that name as the subject (Confluent's
// RecordNameStrategy: several types share a topic, and one type has one history, whatever the topic).
//
// Failures:
//
//	schema incompatible with the subject's history   New fails, with the registry's error
//	registry down, at the start                      New fails; try again
//	registry down, later                             Encode is not affected. Decode is affected only by schema ids that it
//	                                                 has not seen: a plain error, so try again. For one second all such
//	                                                 decodes fail at once without a request. An error response of the
//	                                                 registry is kept for as long, for its id only
//	schema id that the registry does not know        a plain error four times, since registries lag, a second apart
//	                                                 however often it is decoded; from the fifth on ErrPayload, and
//	                                                 requested again after ten seconds. ToJSON: ErrPayload at once
//	not the wire format, cut short, bytes left over, ErrPayload
//	a length or count that the bytes cannot hold
//	writer's schema that the reader's cannot         ErrPayload: a dead letter keeps the bytes for a newer version
//	resolve, or with another logical type
//
// A JSONEncoder encodes JSON that other programs wrote, such as the rows of an outbox, as Avro, with any of Confluent's
// strategies for subjects. It continues while the registry is unavailable, for subjects that it has seen before.
//
// # Schema evolution
//
// The command `troupe schema check` reports whether a new version of a schema is compatible with earlier ones, at Confluent's
// levels, with every incompatible field and a remedy; `troupe schema diff` reports the changes. Neither needs a registry. In a
// running flow, old and new versions of a message are in one topic, and old and new versions of every service run at the same
// time: with FULL_TRANSITIVE each of them can read all messages.
//
// Limits on one payload, for both libraries, and on JSON: 200 levels of records, arrays, maps and unions; 1,048,576 values; 4,096 items
// that take no bytes. They are checked before memory is allocated for it, so a few bytes cannot cause an allocation of gigabytes.
// Importing this package lowers goavro's own limits for the whole process.
//
// Limits on a schema: 1 MiB, and 10,000 fields, types, branches and symbols. A schema above them is ErrNoSchema, like one that is
// not Avro. A response of the registry has at most 4 MiB; one above that is handled like an error response.
//
// Protobuf and JSON Schema are formats of their own packages, schemas/protobuf and schemas/jsonschema: give them to Config.Formats.
//
// Not supported: Avro schemas with references to other subjects (ErrNoSchema).
package schemas
