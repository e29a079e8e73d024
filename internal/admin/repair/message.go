package repair

import (
	"cmp"
	"fmt"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/inbox"
)

// A message is the message of a dead letter or of a held row, read from its stored headers.
type message struct {
	envelope.Message
	headers []envelope.Header // in their original order
	stored  []byte            // the headers as they are stored, if they are too many to decode; else nil
	place   string            // topic id, partition, offset
	unnamed string            // the id that its row has, in place of a missing ce_id; empty in a row of an earlier version
}

// read parses headers as they are stored in a table. If they break a rule, the message has no attributes, and the error gives the
// reason; a participant treats the message in the same way.
func read(headers []byte, topicID uuid.UUID, partition int32, offset int64) (m message, err error) {
	m.place = fmt.Sprintf("%s/%d/%d", topicID, partition, offset)
	if m.headers, err = envelope.UnmarshalHeaders(headers); err != nil {
		m.stored = headers
		return m, err
	}
	if err := m.SetHeaders(m.headers); err != nil {
		return m, err
	}
	return m, nil
}

// id returns ce_id, or the id that the participant made if it has none.
func (m *message) id() string { return cmp.Or(m.ID, m.unnamed, m.place) }

// identity returns the text that identifies the message in the inbox. A message from a retry topic has the identity that it had on
// its first topic.
func (m *message) identity() string {
	if first := deadletter.FirstIdentity(m.Extra); first != "" {
		return first
	}
	if redriven := deadletter.RedriveIdentity(m.Extra); redriven != "" {
		return redriven
	}
	if m.ID == "" {
		return inbox.ID(m.id())
	}
	return inbox.Identity(m.Message)
}

// original returns the headers without the ones that were added when the message became a dead letter.
func (m *message) original() []envelope.Header { return deadletter.Original(m.headers, 0) }
