package testkit

import (
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/topics"
)

// Command returns a command for the hop as a relay would publish it, with a new id, so that sending it again is a duplicate.
// Nothing is sent yet: change the fields that the test is about, such as IdempotencyKey or Payload.
func (s *Stage) Command(key string, body any) envelope.Message {
	s.t.Helper()
	return s.message(s.Hop.Commands(), key, body)
}

// Event returns a success event of another hop, for handlers registered with participant.On or React. The hop must belong to the
// test's own flow, topics.MustHop(s.Hop.Flow(), name), and so must the hop that the handlers are registered for: the topics of
// another flow would be shared with tests that run in parallel, so Event refuses it. Otherwise it works as Command does.
func (s *Stage) Event(from topics.Hop, key string, body any) envelope.Message {
	s.t.Helper()
	if from.Flow() != s.Hop.Flow() {
		s.t.Fatalf("Event of the hop %s: tests that run in parallel with this one would share its topic. Take topics.MustHop(s.Hop.Flow(), %q), "+
			"here and in StageConfig.Handlers: let the function that registers them be given the hop", from, from.Name())
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

// Send publishes messages in their order and returns when the broker has them. The same one twice is a duplicate.
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

// Produce publishes a record unchanged, without Troupe's headers, for records that Send cannot make: bytes of another program. An
// empty Topic means the hop's commands. It returns the message as the participant sees it, with the id that it has there.
func (s *Stage) Produce(r *kgo.Record) envelope.Message {
	s.t.Helper()
	if r.Topic == "" {
		r.Topic = s.Hop.Commands()
	}
	s.publish(r)
	m, _ := kafka.Message(r) // headers that cannot be read may be the subject of the test
	if m.ID == "" {
		ids, err := kafka.TopicIDs(s.t.Context(), s.client, r.Topic)
		require.NoError(s.t, err)
		m.ID = kafka.UnnamedID(ids[r.Topic], r)
	}
	return m
}
