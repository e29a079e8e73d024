package participanttest

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/topics"
)

// Command is a command for the hop as a relay would publish it, with an id of its own, by which it is a duplicate of
// itself however often it is sent. Nothing is sent yet: change in it what the test is about, its IdempotencyKey or its
// Payload.
func (s *Stage) Command(key string, body any) envelope.Message {
	s.t.Helper()
	return s.message(s.Hop.Commands(), key, body)
}

// Event is a success event of another hop, for handlers registered with participant.On or React. The hop is one of the test's
// own flow, topics.MustHop(s.Hop.Flow(), name), and so is that which the handlers are registered for: topics of any other flow
// would be shared with the tests that run beside this one, and it is refused. All else is as for Command.
func (s *Stage) Event(from topics.Hop, key string, body any) envelope.Message {
	s.t.Helper()
	if from.Flow() != s.Hop.Flow() {
		s.t.Fatalf("Event of the hop %s: tests that run beside this one would share its topic. Take topics.MustHop(s.Hop.Flow(), %q), "+
			"here and in Config.Handlers: let the function that registers them be given the hop", from, from.Name())
	}
	m := s.message(from.Events(), key, body)
	m.Source, m.Outcome = from.Name(), envelope.Success
	return m
}

func (s *Stage) message(topic, key string, body any) envelope.Message {
	s.t.Helper()
	encoded, err := s.cfg.Participant.Codec.Encode(topic, body)
	require.NoError(s.t, err)
	id := envelope.NewID()
	return envelope.Message{
		Topic: topic, Key: []byte(key), Payload: encoded.Payload, ID: id, Type: encoded.Type, Source: "test", Subject: key,
		ContentType: encoded.ContentType, CorrelationID: id, IdempotencyKey: id,
	}
}

// Send publishes messages in their order and returns when the broker has them. The same one twice is a duplicate; two
// of a key in another order are delivered in that order.
func (s *Stage) Send(messages ...envelope.Message) {
	s.t.Helper()
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = kafka.Record(m)
	}
	s.publish(records...)
}

func (s *Stage) publish(records ...*kgo.Record) {
	s.t.Helper()
	for _, r := range records {
		s.sent[r.Topic] = true
	}
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
}

// Produce publishes a record as it is, without headers of ours, for what Send cannot make: the bytes of a stranger. An
// empty Topic is the hop's commands. It returns the message as the participant knows it, with the id that it has there.
func (s *Stage) Produce(r *kgo.Record) envelope.Message {
	s.t.Helper()
	if r.Topic == "" {
		r.Topic = s.Hop.Commands()
	}
	s.publish(r)
	m, _ := kafka.Message(r) // headers that cannot be read may be what the test is about
	if m.ID == "" {
		ids, err := kafka.TopicIDs(s.t.Context(), s.client, r.Topic)
		require.NoError(s.t, err)
		m.ID = offsetID(ids[r.Topic], r.Partition, r.Offset)
	}
	return m
}

// offsetID is the identity of a message without ce_id.
func offsetID(topic uuid.UUID, partition int32, offset int64) string {
	return fmt.Sprintf("%s/%d/%d", topic, partition, offset)
}
