package deadletter

import (
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/topics"
)

// Reply returns an entry for hop's events topic that answers m. A command's place in a saga and its idempotency key go
// along: the answer is its step's. An event's place is its own hop's, whose step was answered by the event; what follows
// from it here has none, and an idempotency key of its own.
func Reply(hop topics.Hop, m envelope.Message) outbox.Entry {
	e := outbox.Entry{Topic: hop.Events()}
	switch {
	case m.Topic == hop.Commands():
		e.IdempotencyKey, e.SagaID, e.SagaStep, e.SagaOperation = m.IdempotencyKey, m.SagaID, m.SagaStep, m.SagaOperation
	case m.IdempotencyKey != "":
		e.IdempotencyKey = pgtext.Indexable(m.IdempotencyKey + "/" + hop.Name())
	}
	if len(m.Key) > 0 && pgtext.Fits(m.Key) {
		e.Key = string(m.Key)
	} else {
		e.KeyBytes = m.Key
	}
	return e
}
