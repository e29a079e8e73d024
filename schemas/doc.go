// Package schemas writes and reads payloads as Avro in the wire format of Confluent's registry: a zero byte, the id of
// the writer's schema in four bytes, big end first, then Avro binary.
//
// A Codec is what outbox, participant and relay use. Where the Go type is known (handlers, writers) twmb/avro moves
// structs, and resolves the writer's schema to the reader's. Where it is not (dead letters shown and edited, plain JSON
// rows) goavro turns payloads into JSON and back. A test holds the bytes of both equal on every schema of ours.
//
// A message's type is the full name of its record, and so is the subject that its schema is registered under
// (Confluent's RecordNameStrategy: several types share a topic, and one type has one history, whatever the topic).
//
// What happens when something is wrong:
//
//	schema incompatible with the subject's history   New fails, with what the registry says
//	registry down, at the start                      New fails; try again
//	registry down, later                             Encode does not notice. Decode neither, but for schema ids that it has
//	                                                 not seen: a plain error, worth trying again; for one second all such
//	                                                 decodes fail at once instead of asking. An answer that is an error
//	                                                 is remembered as long, for its id only
//	schema id that the registry does not know        a plain error four times, since registries lag, a second apart
//	                                                 however often it is decoded; from the fifth on ErrPayload, and
//	                                                 asked again after ten seconds. ToJSON: ErrPayload at once
//	no wire format, cut short, bytes left over,      ErrPayload
//	a length or count that the bytes cannot hold
//	writer's schema not readable by ours,            ErrPayload: a dead letter keeps the bytes for a newer version
//	or by another logical type
//
// A JSONEncoder makes Avro of JSON that others wrote, such as the rows of an outbox, under any of Confluent's strategies
// for subjects. A registry that is away does not stop it, once it has seen a subject.
//
// # Evolving
//
// Check says whether a new version of a schema goes with earlier ones, at Confluent's levels, with every field that
// does not and what to do about it; Diff says what changed. Both need no registry. A running flow has old and new
// versions of a message in one topic and of every service in turn: FULL_TRANSITIVE lets all of them read all.
//
// Limits on one payload, whichever library reads it: MaxDepth, MaxValues, MaxEmpty. They hold before anything is
// allocated for it, so a few bytes cannot ask for gigabytes. Importing this package lowers goavro's own limits for the
// whole process.
//
// Limits on a schema, and on an answer of the registry: MaxSchema, MaxSchemaTypes, MaxAnswer. A schema above them is
// ErrNoSchema, as one that is not Avro; an answer above its limit is an answer that is an error.
//
// Not promised: schemas with references to other subjects (ErrNoSchema), protobuf and JSON schemas.
package schemas
