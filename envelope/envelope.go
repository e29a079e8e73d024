// Package envelope is the message: its attributes, how they stand in Kafka headers, its ids, and what one message
// hands on to those it causes.
//
// Headers are CloudEvents 1.0 in the binary mode of its Kafka binding: each attribute a header "ce_" + name, beside
// "content-type". Troupe's own attributes are CloudEvents extensions; trace context is W3C's "traceparent" and
// "tracestate". A header that is none of these survives untouched, binary and repeated ones too.
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
// Nobody writes correlation and causation by hand: a handler's context carries the Cause, and the outbox reads it.
package envelope

import (
	"time"

	"github.com/google/uuid"
)

// Outcome says what a hop made of a command. Commands have none.
type Outcome string

// Success is done. Failure is a refusal by the business: whoever decides compensates. Exhausted says that retries ran
// out and a dead letter exists.
const (
	None      Outcome = ""
	Success   Outcome = "success"
	Failure   Outcome = "failure"
	Exhausted Outcome = "exhausted"
)

// Valid says whether o is one of the four.
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
	Avro = "application/avro" // Confluent wire format: magic 0, schema id in four bytes, Avro binary
)

// A Header is one Kafka header that is not an attribute. A nil value is not the same as an empty one.
type Header struct {
	Key   string
	Value []byte
}

// A Message is what travels. A nil Payload is a tombstone. Messages are values: copy them freely, but do not change
// the bytes behind Key, Payload and Extra of one you were given.
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

	Extra []Header // headers that are no attributes, in their order
}

// NewID is a UUIDv7 of now: ids made one after the other sort in that order, to the millisecond and, in one process,
// below it.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// An Encoder turns a Go value into a payload. Encode does no I/O, since it is called inside the service's
// transaction: what it needs from elsewhere, such as schema ids, it has before. It may be used concurrently.
type Encoder interface {
	// Encode renders body for topic.
	Encode(topic string, body any) (Encoded, error)
}

// Encoded is a payload with what its headers must say of it.
type Encoded struct {
	Type        string
	ContentType string
	Payload     []byte
}

// A Decoder turns a payload back. It may be used concurrently.
type Decoder interface {
	// TypeOf is the ce_type that into's Go type stands for; an error if it stands for none.
	TypeOf(body any) (string, error)
	// Decode reads m's payload into the pointer. An error that wraps ErrPayload says that the bytes can never be
	// read; any other that trying again may help.
	Decode(m Message, into any) error
}

// A Codec is both.
type Codec interface {
	Encoder
	Decoder
}
