package schemas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/registry"
)

// A Strategy derives the registry's subject of a message, named as Confluent does.
type Strategy string

// The strategies.
const (
	TopicName       Strategy = "TopicNameStrategy"       // <topic>-value
	RecordName      Strategy = "RecordNameStrategy"      // <type>, as everywhere else in this package
	TopicRecordName Strategy = "TopicRecordNameStrategy" // <topic>-<type>
)

// ParseStrategy parses a strategy's name, or the name of Confluent's class for it.
func ParseStrategy(text string) (Strategy, error) {
	s := Strategy(strings.TrimPrefix(text, "io.confluent.kafka.serializers.subject."))
	if known := []Strategy{TopicName, RecordName, TopicRecordName}; !slices.Contains(known, s) {
		return "", fmt.Errorf("subject strategy %q: want one of %s, %s, %s", text, known[0], known[1], known[2])
	}
	return s, nil
}

// Subject returns the subject of the schema for topic's messages of type typ.
func (s Strategy) Subject(topic, typ string) string {
	switch s {
	case TopicName:
		return topic + "-value"
	case TopicRecordName:
		return topic + "-" + typ
	}
	return typ
}

// staleTimeout limits a request to the registry for a subject whose last version is known.
const staleTimeout = time.Second

// A JSONEncoder encodes JSON payloads as Avro, or in another format, with the schemas that the registry has for their subjects: services in any
// language write JSON into their outbox, and Kafka carries Avro. It is safe for concurrent use.
type JSONEncoder struct {
	codec    *Codec
	strategy Strategy
	last     *avsc.Cache[string, latestID] // by subject
}

// A latestID is the schema id of a subject's latest version.
type latestID struct {
	id    uint32
	until time.Time // after a failure, the time of the next request
}

// NewJSONEncoder returns a JSONEncoder for Avro and the given formats. It does not connect. The zero Strategy is RecordName.
func NewJSONEncoder(registry *Registry, strategy Strategy, formats ...Format) (*JSONEncoder, error) {
	if strategy == "" {
		strategy = RecordName
	}
	if _, err := ParseStrategy(string(strategy)); err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	codec, err := New(context.Background(), Config{Registry: registry, Formats: formats}) // without types it registers nothing
	if err != nil {
		return nil, err
	}
	return &JSONEncoder{codec: codec, strategy: strategy, last: avsc.NewCache[string, latestID]()}, nil
}

// Strategy returns the encoder's strategy.
func (e *JSONEncoder) Strategy() Strategy { return e.strategy }

// Encode encodes json, the payload of a message of type typ for topic, in the wire format, with the latest version of the
// subject's schema; it accepts the same JSON as Codec.FromJSON. A version is used for a minute before the registry is queried
// again. That request takes at most 5 s, and at most 1 s if an earlier version is known. If the registry is unavailable, the
// known version is used for another minute.
//
// Errors are of three kinds:
//
//	envelope.ErrPayload   json does not fit the schema, or the schema cannot be used: a retry does not help
//	ErrNoSchema           the registry has no usable schema under the subject: retry for a while, as with an unknown topic
//	any other             the registry is unavailable: retry, the message is not the cause
//
// If an error wraps both, ErrPayload applies.
func (e *JSONEncoder) Encode(ctx context.Context, topic, typ string, json []byte) (envelope.Encoded, error) {
	subject := e.strategy.Subject(topic, typ)
	id, err := e.latest(ctx, subject)
	if err != nil {
		return envelope.Encoded{}, err
	}
	s, err := e.codec.schema(ctx, id)
	if err != nil {
		return envelope.Encoded{}, err
	}
	payload, err := s.encode(id, subject, json, func() ([]byte, error) { return s.FromJSON(typ, json) })
	return envelope.Encoded{Type: typ, ContentType: s.contentType, Payload: payload}, err
}

func (e *JSONEncoder) latest(ctx context.Context, subject string) (uint32, error) {
	now := e.codec.registry.Now
	known, seen := e.last.Get(subject)
	if seen && now().Before(known.until) {
		return known.id, nil
	}
	timeout := e.codec.timeout
	if seen {
		timeout = staleTimeout
	}
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	id, err := e.codec.registry.Latest(asking, subject)
	switch {
	case err == nil && seen && id == known.id:
		return id, nil
	case err == nil:
		known = latestID{id: id}
	case !seen, errors.Is(err, ErrNoSchema), ctx.Err() != nil:
		return 0, err
	default:
		known.until = now().Add(registry.ForgetLatest)
	}
	e.last.Put(subject, known, len(subject))
	return known.id, nil
}
