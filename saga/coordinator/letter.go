package coordinator

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

//go:embed sql/find_letter.sql
var findLetter string

// exhausted decodes an exhausted event. An event of another hop names the step of the saga that it answers. An event of the
// coordinator's own hop may be about an answer that the coordinator could not decide on; it names no saga. Then the dead
// letter, which is in the same database, has the headers of that answer, which name the saga and the step.
func (c *Coordinator) exhausted(ctx context.Context, tx pgx.Tx, in envelope.Message, m decisions.Message) (decisions.Message, error) {
	var body participant.Exhausted
	if err := json.Unmarshal(in.Payload, &body); err != nil {
		return m, retry.Permanent(fmt.Errorf("%s: %w", in.Type, err))
	}
	m.Reason = reasonOf(body)
	if in.Topic == c.hop.Events() {
		m.Hop = "" // the event does not name the hop that answered; saga.Decide would ignore an event of another hop
	}
	if in.Topic != c.hop.Events() || m.SagaID != "" || body.Type == body.MessageType() { // else it would come back for ever
		return m, nil
	}
	id, err := uuid.Parse(body.DeadLetterID)
	if err != nil {
		return m, retry.Permanent(fmt.Errorf("%s: dead letter %q: %w", in.Type, body.DeadLetterID, err))
	}
	var headers []byte
	var topic string
	err = tx.QueryRow(ctx, findLetter, pgx.NamedArgs{"id": id, "group": c.cfg.Participant.Group()}).Scan(&headers, &topic)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, nil // of another group, or deleted since
	}
	if err != nil {
		return m, err
	}
	hs, err := envelope.UnmarshalHeaders(headers)
	if err != nil {
		return m, retry.Permanent(err)
	}
	var answer envelope.Message
	if err := answer.SetHeaders(hs); err != nil {
		return m, retry.Permanent(err)
	}
	if of, err := topics.Parse(topic); err == nil {
		m.Hop = of.Hop.Name() // the dead letter of another hop than the step's is not about the step
	}
	of := decisions.MessageOf(answer, "")
	m.SagaID, m.SagaStep, m.SagaOperation, m.Epoch = of.SagaID, of.SagaStep, of.SagaOperation, of.Epoch
	return m, nil
}
