package decisions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/retryheader"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

// causeKey holds everything on which the id of a message depends:
//
//   - message is the index of the handled message, and id is the id of the saga.
//   - from is the event that was decided on: the id of its message, or the version of the state.
//   - output is the idempotency key of a command. For an event it is the topic and the type.
//   - path is the event's place in the definition.
type causeKey struct {
	message                int
	id, from, output, path string
}

// follow returns the context in which the outbox writes e, a message of decision d. The outbox derives the message's id from this context. path
// is the place of an emitted event in the definition; it is empty for a command.
//
// The id of a command depends on the saga, on the command's idempotency key, and on the message that was decided on. If there was none, it
// depends on the version of the state. So commands of two sagas have different ids, even if one message caused both. The id does not depend
// on decisions for other sagas, nor on other messages of d. After the database was set back, the handled message may come again, and lead to
// a decision for only one of the sagas, or to another command. The hop must not take that command for a duplicate of the lost one.
//
// The id of an emitted event depends only on the saga, its flow, path, the topic and the type: after the database was set back, another
// message than before may cause the event.
//
// If no message was handled (an operator's action, a deadline or a call), the message belongs to the saga's flow.
func follow(ctx context.Context, d Decided, e outbox.Entry, path string, taken []participant.Taken, causes map[causeKey]*envelope.Cause) context.Context {
	if d.Message >= 0 && taken != nil {
		ctx = taken[d.Message].Context()
	}
	cause := envelope.CauseOf(ctx)
	if d.Message >= 0 && cause == nil || d.Message < 0 && d.State.Correlation == "" {
		return ctx
	}
	if d.State.Correlation == "" {
		path = ""
	}
	key := causeKey{d.Message, d.ID, d.Event.Message, cmp.Or(e.IdempotencyKey, e.Topic+" "+e.Type), path}
	if d.Message < 0 {
		key.from = "#" + strconv.Itoa(d.State.Version)
	}
	if own := causes[key]; own != nil {
		return envelope.WithCause(ctx, own)
	}
	own := &envelope.Cause{At: d.At}
	if cause != nil {
		own.Message, own.At, own.Redrive = cause.Message, cause.At, cause.Redrive
	}
	if d.Message >= 0 {
		own.Handler = cause.Handler + " " + key.id + " " + key.from + " " + key.output
	} else {
		own.Handler = d.State.Correlation + " " + d.ID + key.from + " " + key.output
		own.Message.ID, own.Message.CorrelationID = cmp.Or(d.Event.Message, own.Message.ID), d.State.Correlation
	}
	if path != "" {
		own.Name = fmt.Sprintf("%q", []string{d.ID, d.State.Correlation, path, key.output})
	}
	causes[key] = own
	return envelope.WithCause(ctx, own)
}

// entries returns the messages that a decision sends.
func (d *Decider) entries(ctx context.Context, one Decided) (all []outbox.Entry, err error) {
	for _, s := range one.Effects.Commands {
		e := outbox.Entry{
			Topic: topics.MustHop(d.hop.Flow(), s.Hop).Commands(), Key: one.State.Key, Type: s.Type,
			IdempotencyKey: one.ID + "/" + s.Step + "/" + s.Operation + "/" + strconv.Itoa(s.Epoch),
			SagaID:         one.ID, SagaStep: s.Step, SagaOperation: s.Operation,
		}
		if s.Doubt {
			e.Headers = append(e.Headers, envelope.Header{Key: ce.HeaderDoubt, Value: []byte("true")})
		}
		if s.First < s.Epoch {
			first := one.ID + "/" + s.Step + "/" + s.Operation + "/" + strconv.Itoa(s.First)
			e.Headers = append(e.Headers, envelope.Header{Key: ce.HeaderFirstKey, Value: []byte(first)})
		}
		if !s.Since.IsZero() {
			e.Headers = append(e.Headers, envelope.Header{Key: ce.HeaderSince, Value: []byte(s.Since.Format(time.RFC3339))})
		}
		if r := s.Retry; r != nil {
			policy := retry.Policy{Initial: time.Duration(r.Initial), Cap: time.Duration(r.Cap), Attempts: r.Attempts}
			h, err := retryheader.Override{Policy: policy, Try: time.Duration(r.Try)}.Header()
			if err != nil {
				return nil, retry.Permanent(err)
			}
			e.Headers = append(e.Headers, h)
		}
		if err := d.render(ctx, &e, s.Fields); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	for _, m := range one.Effects.Events {
		hop := d.hop
		if m.Hop != "" {
			hop = topics.MustHop(d.hop.Flow(), m.Hop)
		}
		e := outbox.Entry{Topic: hop.Events(), Key: one.State.Key, Type: m.Type, Outcome: envelope.Success, SagaID: one.ID}
		if m.Failure {
			e.Outcome = envelope.Failure
		}
		if err := d.render(ctx, &e, m.Fields); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// render sets the payload and the content type of e.
func (d *Decider) render(ctx context.Context, e *outbox.Entry, fields map[string]any) error {
	text, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	e.Payload, e.ContentType = text, envelope.JSON
	if d.cfg.Schemas == nil || e.Type == saga.CallType {
		return nil
	}
	encoded, err := d.cfg.Schemas.FromValues(ctx, e.Type, text)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	e.Payload, e.ContentType = encoded.Payload, encoded.ContentType
	return nil
}
