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
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

//go:embed sql/find_letter.sql
var findLetter string

// exhausted reads an exhausted event. One of another hop says which step of a saga it answers. One of the coordinator's own
// hop may be about an answer that the coordinator could not decide on, and the exhausted event of an event has no place in
// a saga: the dead letter, which is in the same database, has the place of the answer.
func (c *Coordinator) exhausted(ctx context.Context, tx pgx.Tx, in envelope.Message, m Message) (Message, error) {
	var body participant.Exhausted
	if err := json.Unmarshal(in.Payload, &body); err != nil {
		return m, retry.Permanent(fmt.Errorf("%s: %w", in.Type, err))
	}
	m.Reason = reasonOf(body)
	if in.Topic == c.hop.Events() {
		m.Hop = "" // the hop that answered is not in it, and saga.Decide ignores what another hop has given up
	}
	if in.Topic != c.hop.Events() || m.SagaID != "" || body.Type == body.MessageType() { // that would come back for ever
		return m, nil
	}
	id, err := uuid.Parse(body.DeadLetterID)
	if err != nil {
		return m, retry.Permanent(fmt.Errorf("%s: dead letter %q: %w", in.Type, body.DeadLetterID, err))
	}
	var headers []byte
	err = tx.QueryRow(ctx, findLetter, pgx.NamedArgs{"id": id, "group": c.cfg.Participant.Group()}).Scan(&headers)
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
	var of envelope.Message
	if err := of.SetHeaders(hs); err != nil {
		return m, retry.Permanent(err)
	}
	m.SagaID, m.SagaStep, m.SagaOperation, m.Epoch = of.SagaID, of.SagaStep, of.SagaOperation, epochOf(of.IdempotencyKey)
	return m, nil
}
