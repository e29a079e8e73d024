// Package personal encrypts personal data in payloads, with a key for each person, a subject. A person's data can then be forgotten
// everywhere at once, also in Kafka, in backups of it and in other databases: by deleting the key.
//
// A schema marks its fields with the property personal (a keyword in JSON Schema, an option in Protobuf). Its value is "subject" for the
// field with the person's id, and for a string or bytes field with personal data the kind of these data, such as email:
//
//	Avro          {"name": "customer_id", "type": "string", "personal": "subject"}
//	JSON Schema   "email": {"type": "string", "personal": "email"}
//	Protobuf      string email = 2 [(troupe.personal) = "email"];
//
// A Codec replaces the value of a marked field by a text: Prefix, then a ciphertext in base64 (URL, without padding), of Tink's
// deterministic AEAD (AES-SIV, RFC 5297). The associated data are the kind, a NUL and the subject. So a value can be copied to another field
// only of the same kind, in a message about the same subject. An empty value stays empty. All other programs, such as relays, coordinators
// of sagas and consoles, see and copy the text.
//
// Equal values of one subject and kind have equal ciphertexts. So a command that is sent again has the same bytes, by which a participant
// recognises a repeated request; with AES-GCM it would be another request with the same idempotency key, and become a dead letter. A reader
// without the key learns only that a person's value has not changed. Equal values of two persons differ.
//
// Reading is tolerant: a marked field without Prefix, from a writer that does not encrypt it yet, is read as it is.
//
//	failure                                          effect
//	the subject's key is forgotten                   Decode leaves the field empty: see Codec.Forgotten; Encode fails, permanently
//	the store of keys is away                        Encode and Decode fail: try again. For a second all lookups fail at once
//	a key that the store cannot decrypt              Encode and Decode fail: try again. Other subjects' keys are looked up as before
//	there is no key for an encrypted value           Decode fails: try again; it is not taken for a forgotten one
//	the value was changed, or moved to another       Decode: envelope.ErrPayload
//	subject or kind, or has another key
//	personal data without a subject                  Encode fails, permanently; Decode: envelope.ErrPayload
//	a mark at a field that cannot be encrypted       New fails
//	Protobuf code that is older than a mark          schemas.New fails
//
// Not supported: marks of numbers, enums, logical types, elements of lists, extensions, and of fields below maps, unions of several records
// and recursive types; messages inside a google.protobuf.Any, which are not looked into; Go types with methods that write or read them, such
// as MarshalText, for personal fields and subjects; payloads without a schema; headers, keys and ids, in which no personal data belongs.
package personal
