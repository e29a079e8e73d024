package deadletter

import (
	"encoding/json"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/topics"
)

// EventKey returns the idempotency key by which the event m is one question. A command that is redriven and fails again has a
// second exhausted event with the command's idempotency key: each is known by its dead letter.
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

// Reply returns an entry for hop's events topic that answers m. A command's place in a saga and its idempotency key go
// along: the answer is its step's. An event's place is its own hop's, whose step was answered by the event; what follows
// from it here has none, and an idempotency key of its own.
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
