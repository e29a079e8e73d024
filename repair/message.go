package repair

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// message is a dead letter's or a held row's message, read from what is stored of it.
type message struct {
	envelope.Message
	headers []envelope.Header // as they came
	place   string            // topic id, partition, offset: the identity of a message without one
	redrive int
}

// read takes headers as they stand in a table. Ones that break a rule leave a message without attributes, and the
// error says why; a participant sees it the same way.
func read(headers []byte, topicID uuid.UUID, partition int32, offset int64) (m message, err error) {
	m.place = fmt.Sprintf("%s/%d/%d", topicID, partition, offset)
	if m.headers, err = envelope.UnmarshalHeaders(headers); err != nil {
		return m, err
	}
	if err := m.SetHeaders(m.headers); err != nil {
		return m, err
	}
	for _, h := range m.Extra {
		if h.Key == participant.HeaderRedrive {
			if n, err := strconv.ParseUint(string(h.Value), 10, 31); err == nil {
				m.redrive = int(n)
			}
			break
		}
	}
	return m, nil
}

// identity is the message's as participants know it.
func (m *message) identity() string {
	if m.ID == "" {
		return m.place
	}
	return m.ID
}

// indexed is an identity as it stands in troupe.inbox and troupe.dead_letters, where a long one is a hash.
func indexed(id string) string {
	if len(id) <= 255 && !strings.Contains(id, "\x00") {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// original are the headers without those of a dead letter that the message was before.
func (m *message) original() []envelope.Header {
	var hs []envelope.Header
	for _, h := range m.headers {
		if !strings.HasPrefix(h.Key, "__dlq.errors.") && !strings.HasPrefix(h.Key, "__troupe.dlq.") {
			hs = append(hs, h)
		}
	}
	return hs
}

// maxSendBytes is the most that key, headers and payload of an entry may have together: what a participant allows the
// copy of a dead letter, and below Kafka's own default for a batch (max.message.bytes, 1,048,588).
const maxSendBytes = 990_000

func size(key, payload []byte, headers []envelope.Header) int {
	n := len(key) + len(payload)
	for _, h := range headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// readable is s as Postgres's text takes it, cut to limit bytes.
func readable(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}
