package coordinator

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

var (
	//go:embed sql/find_letter.sql
	findLetter string
	//go:embed sql/is_retry_event.sql
	isRetryEvent string
)

// exhausted reads the exhausted event in: its reason, and the saga and the step that it is about. The warnings about it are logged when w has
// committed.
//
// If another hop gave up a command of a saga, the headers of its event name the saga and the step. An exhausted event of the coordinator's own
// hop may be about an answer that the coordinator could not decide on. Its headers then name no saga. exhausted reads the saga and the step
// from the dead letter of that answer, which is in this database: from its headers or, if the dead letter is a RetryEvent, from its payload.
//
// If the event is about no answer, the result names no saga, and no saga is parked. If the dead letter was deleted, w also logs a warning when it
// has committed, since the step continues to wait for the answer.
func (c *Coordinator) exhausted(ctx context.Context, w *decisions.Work, tx pgx.Tx, in envelope.Message) (decisions.Message, error) {
	topic, err := topics.Parse(in.Topic)
	if err != nil {
		return decisions.Message{}, retry.Permanent(err)
	}
	m := decisions.MessageOf(in, topic.Hop.Name())
	var body participant.Exhausted
	if err := json.Unmarshal(in.Payload, &body); err != nil {
		return m, retry.Permanent(fmt.Errorf("%s: %w", in.Type, err))
	}
	m.Reason = reasonOf(body)
	if in.Topic == c.hop.Events() {
		m.Hop = "" // the coordinator's hop is not the hop that answered, and saga.Decide ignores an event of another hop
	}
	// If the dead letter is itself an exhausted event, m names no saga. The saga is not parked, although its step waits. The dead letter of
	// the answer is open too: its redrive continues the saga.
	if in.Topic != c.hop.Events() || m.SagaID != "" || body.Type == body.MessageType() {
		return m, nil
	}
	id, err := uuid.Parse(body.DeadLetterID)
	if err != nil {
		return m, retry.Permanent(fmt.Errorf("%s: dead letter %q: %w", in.Type, body.DeadLetterID, err))
	}
	var headers, retried []byte
	var from string
	args := pgx.NamedArgs{"id": id, "group": c.cfg.Participant.Group(), "retry_event": decisions.RetryEvent{}.MessageType()}
	err = tx.QueryRow(ctx, findLetter, args).Scan(&headers, &from, &retried)
	if errors.Is(err, pgx.ErrNoRows) {
		if group := c.cfg.Participant.Group(); body.Handler == group || strings.HasPrefix(body.Handler, group+"/") { // else it is of another group
			w.Warn(func() {
				c.cfg.Log.Warn().Str("dead_letter", body.DeadLetterID).Str("message_id", in.ID).Str("type", body.Type).
					Msg("a dead letter was deleted before its exhausted event came: if it was an answer, its saga is not parked, and the step waits on")
			})
		}
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if retried != nil {
		m, ignored, err := c.exhaustedRetry(ctx, tx, id, retried, m)
		if ignored != "" {
			w.Warn(func() {
				c.cfg.Log.Warn().Stringer("dead_letter", id).Str("message_id", in.ID).Str("reason", ignored).
					Msg("the dead letter of an event that was to be tried again parks no saga: if it was an answer that has not taken effect, its step waits on")
			})
		}
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
	if of, err := topics.Parse(from); err == nil {
		m.Hop = of.Hop.Name() // saga.Decide ignores the event if the dead letter is from another hop than the step's
	}
	of := decisions.MessageOf(answer, "")
	m.SagaID, m.SagaStep, m.SagaOperation, m.Epoch = of.SagaID, of.SagaStep, of.SagaOperation, of.Epoch
	return m, nil
}

// exhaustedRetry sets the saga and the step of m from payload, the RetryEvent of a dead letter. It leaves m unchanged if the event in
// payload is not an answer. It also leaves m unchanged, and returns the reason as ignored, if payload cannot be read, or if the dead letter
// is not the message of a deadline of this group.
func (c *Coordinator) exhaustedRetry(
	ctx context.Context, tx pgx.Tx, letter uuid.UUID, payload []byte, m decisions.Message,
) (_ decisions.Message, ignored string, err error) {
	var body decisions.RetryEvent
	if err := json.Unmarshal(payload, &body); err != nil {
		return m, "its payload cannot be read: " + err.Error(), nil
	}
	answer, err := saga.ReadEvent(body.Event)
	if err != nil {
		return m, "its event cannot be read: " + err.Error(), nil
	}
	if answer.Kind != saga.Answered { // an event that no step sent a command for: its saga does not wait for it alone
		return m, "", nil
	}
	var is bool
	args := pgx.NamedArgs{"id": letter, "group": c.cfg.Participant.Group(), "scope": pgtext.Indexable(body.Scope())}
	if err := tx.QueryRow(ctx, isRetryEvent, args).Scan(&is); err != nil {
		return m, "", err
	}
	if !is {
		return m, "its deadline is gone, or it is a copy of the deadline's message", nil
	}
	m.Hop, m.SagaID, m.SagaStep, m.SagaOperation, m.Epoch = answer.Hop, body.Saga, answer.Step, answer.Operation, answer.Epoch
	return m, "", nil
}
