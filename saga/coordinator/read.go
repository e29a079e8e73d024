package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

// read decodes an event, for a decision of w in tx. It decodes the payload only if the event answers a step, or if a known definition starts by it or awaits it.
// If the event can never be decoded, the error is permanent.
func (c *Coordinator) read(ctx context.Context, w *decisions.Work, tx pgx.Tx, in envelope.Message) (decisions.Message, error) {
	if in.Outcome == envelope.Exhausted {
		return c.exhausted(ctx, w, tx, in)
	}
	topic, err := topics.Parse(in.Topic)
	if err != nil {
		return decisions.Message{}, retry.Permanent(err)
	}
	m := decisions.MessageOf(in, topic.Hop.Name())
	answers, concerns := m.SagaID != "" && m.SagaStep != "", c.definitions.Concern(m.Hop, m.Type)
	if !answers && !concerns {
		return m, nil
	}
	m.Fields, err = c.fields(ctx, in)
	if err == nil {
		return m, nil
	}
	err = fmt.Errorf("%s: %w", in.Type, err)
	if name, _, _ := strings.Cut(m.SagaID, "/"); answers && !concerns && c.definitions.Current(name) == nil && retry.IsPermanent(err) {
		m.Unreadable = err // decided on as an error if the saga is stored for this coordinator, else ignored
		return m, nil
	}
	return m, err
}

// fields decodes the payload. If the payload can never be decoded, the error is permanent.
func (c *Coordinator) fields(ctx context.Context, in envelope.Message) (map[string]any, error) {
	if c.cfg.Schemas != nil && envelope.HasSchemaID(in.ContentType) {
		name, value, err := c.cfg.Schemas.Values(ctx, in.Payload)
		if errors.Is(err, envelope.ErrPayload) {
			err = retry.Permanent(err)
		}
		fields, is := value.(map[string]any)
		if err == nil && !is {
			err = retry.Permanent(fmt.Errorf("%s is no record", name))
		}
		if err == nil {
			err = retry.Permanent(saga.Canonical(fields))
		}
		return fields, err
	}
	if len(in.Payload) == 0 {
		return nil, nil
	}
	fields, err := saga.ReadFields(in.Payload)
	return fields, retry.Permanent(err)
}

// reasonOf returns the reason for which a saga is parked after the exhausted event e.
func reasonOf(e participant.Exhausted) string {
	return fmt.Sprintf("%s gave up after %d attempts: %s", e.Handler, e.Attempts, e.Error)
}
