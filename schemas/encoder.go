package schemas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Strategy is under which subject of the registry the schema of a message stands, by Confluent's names.
type Strategy string

// The strategies.
const (
	TopicName       Strategy = "TopicNameStrategy"       // <topic>-value
	RecordName      Strategy = "RecordNameStrategy"      // <type>, as everywhere else in this package
	TopicRecordName Strategy = "TopicRecordNameStrategy" // <topic>-<type>
)

// ParseStrategy reads a strategy's name, or the name of Confluent's class for it.
func ParseStrategy(text string) (Strategy, error) {
	s := Strategy(strings.TrimPrefix(text, "io.confluent.kafka.serializers.subject."))
	if known := []Strategy{TopicName, RecordName, TopicRecordName}; !slices.Contains(known, s) {
		return "", fmt.Errorf("subject strategy %q: want one of %s, %s, %s", text, known[0], known[1], known[2])
	}
	return s, nil
}

// Subject is where the schema of topic's messages of type typ stands.
func (s Strategy) Subject(topic, typ string) string {
	switch s {
	case TopicName:
		return topic + "-value"
	case TopicRecordName:
		return topic + "-" + typ
	}
	return typ
}

// staleTimeout is how long a registry is waited for that need not answer.
const staleTimeout = time.Second

// A JSONEncoder makes Avro of JSON payloads, with the schemas that the registry has for their topics: services in any
// language write JSON into their outbox, and Kafka carries Avro. It may be used concurrently.
type JSONEncoder struct {
	codec    *Codec
	strategy Strategy
	last     *cache[string, latest] // by subject; until is when to ask again after a failure
}

// NewJSONEncoder makes one. It does not connect. The zero Strategy is RecordName.
func NewJSONEncoder(registry *Registry, strategy Strategy) (*JSONEncoder, error) {
	if strategy == "" {
		strategy = RecordName
	}
	if _, err := ParseStrategy(string(strategy)); err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	codec, err := New(context.Background(), Config{Registry: registry}) // without types it registers nothing
	if err != nil {
		return nil, err
	}
	return &JSONEncoder{codec: codec, strategy: strategy, last: newCache[string, latest]()}, nil
}

// Strategy is the one in use.
func (e *JSONEncoder) Strategy() Strategy { return e.strategy }

// Encode writes json, the payload of a message of type typ for topic, in the wire format, with the latest version of
// the subject's schema; what it accepts is what Codec.FromJSON does. The registry is asked for a subject at most once a
// minute, for 5 s. One that does not answer is not missed by subjects that were seen before: their last version goes on
// being used, and is asked for again after a minute.
//
// Errors are of three kinds:
//
//	envelope.ErrPayload   json does not fit the schema, or the schema cannot be used: trying again does not help
//	ErrNoSchema           the registry has no Avro schema under the subject: try for a while, as with an unknown topic
//	any other             the registry is away: try again, it is not the message's fault
//
// The first wins where both are wrapped.
func (e *JSONEncoder) Encode(ctx context.Context, topic, typ string, json []byte) ([]byte, error) {
	subject := e.strategy.Subject(topic, typ)
	id, err := e.latest(ctx, subject)
	if err != nil {
		return nil, err
	}
	return e.codec.fromJSON(ctx, id, subject, json)
}

func (e *JSONEncoder) latest(ctx context.Context, subject string) (uint32, error) {
	now := e.codec.registry.trouble.now
	known, seen := e.last.get(subject)
	if seen && now().Before(known.until) {
		return known.id, nil
	}
	timeout := e.codec.timeout
	if seen {
		timeout = staleTimeout
	}
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	id, _, err := e.codec.registry.Latest(asking, subject)
	switch {
	case err == nil && seen && id == known.id:
		return id, nil
	case err == nil:
		known = latest{id: id}
	case !seen, errors.Is(err, ErrNoSchema), ctx.Err() != nil:
		return 0, err
	default:
		known.until = now().Add(forgetLatest)
	}
	e.last.put(subject, known)
	return known.id, nil
}
