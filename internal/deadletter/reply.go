package deadletter

import (
	"encoding/json"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/topics"
)

// EventKey returns the idempotency key by which a handler recognises the event m. A command that is redriven and fails again has
// a second exhausted event with the command's idempotency key: for an exhausted event the key contains the dead letter's id.
func EventKey(m envelope.Message) string {
	if m.Outcome != envelope.Exhausted || m.IdempotencyKey == "" {
		return m.IdempotencyKey
	}
	var body struct {
		DeadLetterID string `json:"dead_letter_id"`
	}
	if json.Unmarshal(m.Payload, &body) != nil || body.DeadLetterID == "" {
		return m.IdempotencyKey
	}
	return m.IdempotencyKey + "/" + body.DeadLetterID
}

// Reply returns an entry for hop's events topic that answers m. The answer to a command has the command's saga, step and
// idempotency key. The saga of an event is known to its own hop only, and the event has answered its step; an event that follows
// from it here has no saga, and an idempotency key of its own.
func Reply(hop topics.Hop, m envelope.Message) outbox.Entry {
	e := outbox.Entry{Topic: hop.Events()}
	switch {
	case m.Topic == hop.Commands():
		e.IdempotencyKey, e.SagaID, e.SagaStep, e.SagaOperation = m.IdempotencyKey, m.SagaID, m.SagaStep, m.SagaOperation
	case m.IdempotencyKey != "":
		e.IdempotencyKey = pgtext.Indexable(EventKey(m) + "/" + hop.Name())
	}
	if len(m.Key) > 0 && pgtext.Fits(m.Key) {
		e.Key = string(m.Key)
	} else {
		e.KeyBytes = m.Key
	}
	return e
}
