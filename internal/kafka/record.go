package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
)

// Record returns the record of m. Key and payload are not copied.
func Record(m envelope.Message) *kgo.Record {
	hs := m.Headers()
	r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Payload, Headers: make([]kgo.RecordHeader, len(hs))}
	for i, h := range hs {
		r.Headers[i] = kgo.RecordHeader(h)
	}
	return r
}

// Message converts a record to a message. The key, payload and headers are not copied. A record without ce_id, or with none of
// our headers, is a message too. The error wraps envelope.ErrHeaders, and then the message has everything except the headers.
func Message(r *kgo.Record) (envelope.Message, error) {
	m := envelope.Message{Topic: r.Topic, Key: r.Key, Payload: r.Value}
	if err := m.SetHeaders(Headers(r)); err != nil {
		return m, err
	}
	if m.Time.IsZero() {
		m.Time = r.Timestamp
	}
	return m, nil
}

// Headers returns the record's headers unchanged.
func Headers(r *kgo.Record) []envelope.Header {
	hs := make([]envelope.Header, len(r.Headers))
	for i, h := range r.Headers {
		hs[i] = envelope.Header(h)
	}
	return hs
}
