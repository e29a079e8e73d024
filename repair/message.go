package repair

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/inbox"
)

// message is a dead letter's or a held row's message, read from what is stored of it.
type message struct {
	envelope.Message
	headers []envelope.Header // as they came
	place   string            // topic id, partition, offset
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
	return m, nil
}

// id returns ce_id, or the message's place where it has none.
func (m *message) id() string {
	if m.ID == "" {
		return m.place
	}
	return m.ID
}

// identity returns the text by which the inbox knows the message.
func (m *message) identity() string {
	if m.ID == "" {
		return inbox.ID(m.place)
	}
	return inbox.Identity(m.Message)
}

// original are the headers without those of a dead letter that the message was before.
func (m *message) original() []envelope.Header { return deadletter.Original(m.headers, 0) }
