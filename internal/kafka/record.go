package kafka

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
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

// UnnamedID returns the id of a message without ce_id: topic id, partition, offset, "~" and 16 hex digits of a hash of the record's
// timestamp, key, value and headers. A broker that lost the end of a log gives its offsets to other records: the hash
// distinguishes them. A record that is fetched again has the same one.
func UnnamedID(topicID uuid.UUID, r *kgo.Record) string {
	h := sha256.New()
	var number [8]byte
	add := func(b []byte) {
		size := int64(len(b))
		if b == nil {
			size = -1
		}
		binary.BigEndian.PutUint64(number[:], uint64(size))
		_, _ = h.Write(number[:]) // a hash never fails
		_, _ = h.Write(b)
	}
	binary.BigEndian.PutUint64(number[:], uint64(r.Timestamp.UnixMilli()))
	_, _ = h.Write(number[:])
	add(r.Key)
	add(r.Value)
	for _, header := range r.Headers {
		add([]byte(header.Key))
		add(header.Value)
	}
	return fmt.Sprintf("%s/%d/%d~%x", topicID, r.Partition, r.Offset, h.Sum(nil)[:8])
}

// Headers returns the record's headers unchanged.
func Headers(r *kgo.Record) []envelope.Header {
	hs := make([]envelope.Header, len(r.Headers))
	for i, h := range r.Headers {
		hs[i] = envelope.Header(h)
	}
	return hs
}
