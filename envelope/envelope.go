// Package envelope defines a message: its attributes, their Kafka headers, its ids, and the attributes that a message passes
// on to the messages it causes.
//
// Headers are CloudEvents 1.0 in the binary mode of its Kafka binding: each attribute is a header "ce_" + name, and the
// content type is the header "content-type". Troupe's own attributes are CloudEvents extensions; trace context is W3C's
// "traceparent" and "tracestate". All other headers are passed on unchanged, including binary and repeated ones.
//
//	attribute       header             on
//	ID              ce_id              all; unique within its Source: Message.Identity is for de-duplication
//	Source          ce_source          all; the service
//	Type            ce_type            all; the Avro full name, else the name the writer gave
//	Subject         ce_subject         all that have a key
//	Time            ce_time            all; RFC 3339
//	ContentType     content-type       all but tombstones
//	CorrelationID   ce_correlationid   all; the flow: the id of its first message
//	CausationID     ce_causationid     all but a flow's first: the id of the message that caused this one
//	Outcome         ce_outcome         events
//	IdempotencyKey  ce_idempotencykey  commands, and the events that answer them
//	SagaID, SagaStep, SagaOperation    ce_sagaid, ce_sagastep, ce_sagaoperation
//
// You do not set correlation and causation: a handler's context carries the Cause, and the outbox reads it.
package envelope

import (
	"time"

	"github.com/google/uuid"
)

// An Outcome is the result of a command at a hop. Commands have none.
type Outcome string

// Success means done. Failure means refused for a business reason: the coordinator, or in a choreography the services that
// react to it, compensate. Exhausted means that the message is not tried again, because its retries are used up or its error is
// permanent, and that a dead letter exists.
const (
	None      Outcome = ""
	Success   Outcome = "success"
	Failure   Outcome = "failure"
	Exhausted Outcome = "exhausted"
)

// Valid reports whether o is one of the four outcomes.
func (o Outcome) Valid() bool {
	return o == None || o == Success || o == Failure || o == Exhausted
}

// The operations of a saga's step.
const (
	Forward    = "forward"
	Compensate = "compensate"
)

// Content types of payloads.
const (
	JSON = "application/json"
	// Those below have Confluent's wire format: a zero byte, the schema id in four bytes, then
	Avro       = "application/avro"                    // Avro binary
	Protobuf   = "application/protobuf"                // the indexes of the message in its file, Protobuf binary
	JSONSchema = "application/vnd.schemaregistry.json" // JSON that fits a JSON Schema
)

// HasSchemaID reports whether payloads of a content type have Confluent's wire format, and so the id of their schema.
func HasSchemaID(contentType string) bool {
	return contentType == Avro || contentType == Protobuf || contentType == JSONSchema
}

// A Header is one Kafka header that is not an attribute. A nil value differs from an empty one.
type Header struct {
	Key   string
	Value []byte
}

// A Message is one Kafka message with its attributes. A nil Payload is a tombstone. Messages are values: copy them freely,
// but do not change the bytes of Key, Payload and Extra of a message that you received.
type Message struct {
	Topic   string
	Key     []byte
	Payload []byte

	ID             string
	Source         string
	Type           string
	Subject        string
	Time           time.Time
	ContentType    string
	CorrelationID  string
	CausationID    string
	Outcome        Outcome
	IdempotencyKey string
	SagaID         string
	SagaStep       string
	SagaOperation  string
	TraceParent    string
	TraceState     string

	Extra []Header // headers that are not attributes, in their order
}

// NewID returns a new UUIDv7. Ids sort in the order of their creation, to the millisecond, and within one process also below
// it.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// An Encoder turns a Go value into a payload. Encode is called inside the service's transaction: an implementation loads the ids of schemas
// in advance. One that reads from a store, as package schemas/personal does, needs a connection of its own, and marks a failure of
// the store with retry.After. It must be safe for concurrent use.
type Encoder interface {
	// Encode renders body for topic. A participant takes its error for a permanent one about the body of an outcome or of a deadline, unless
	// the error is marked with retry.After.
	Encode(topic string, body any) (Encoded, error)
}

// Encoded is a payload with the attributes that describe it.
type Encoded struct {
	Type        string
	ContentType string
	Payload     []byte
}

// A Decoder turns a payload into a Go value. It must be safe for concurrent use.
type Decoder interface {
	// TypeOf returns the ce_type of messages whose payload is decoded into body's Go type, or an error if that type has none.
	TypeOf(body any) (string, error)
	// Decode decodes m's payload into the pointer. An error that wraps ErrPayload is permanent: the bytes can never be
	// decoded. A retry may fix any other error.
	Decode(m Message, into any) error
}

// A Codec encodes and decodes.
type Codec interface {
	Encoder
	Decoder
}
