package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// ReleaseConfig says how a Release goes about it. By, with a Reason, is required.
type ReleaseConfig struct {
	By By
	// Group is needed where more than one group of this database holds the message.
	Group string
	// Hop is the participant's, which the copy and the event go out by. Default: what the group's name says.
	Hop topics.Hop
}

// A ReleaseResult is what became of a released message.
type ReleaseResult struct {
	DeadLetter uuid.UUID `json:"dead_letter"` // uuid.Nil: it had taken effect before, and was only still held
	Behind     int       `json:"behind"`      // messages of the key that go on
}

// Release gives a held message up: it becomes a dead letter now, as it would when its attempts are used up, with its
// copy for the hop's dlq topic and its exhausted event; and its key goes on with the next message. A try that runs is
// waited for.
//
// The error wraps ErrGone, ErrBehind or ErrBusy, as the case may be; then nothing has happened.
func (d *Desk) Release(ctx context.Context, p Place, cfg ReleaseConfig) (ReleaseResult, error) {
	var r ReleaseResult
	err := cfg.By.check(true)
	if err == nil {
		err = d.act(ctx, func(tx pgx.Tx) (err error) {
			r, err = release(ctx, tx, p, cfg)
			return err
		})
	}
	if err != nil {
		return ReleaseResult{}, fmt.Errorf("release %s: %w", p, err)
	}
	return r, nil
}

const (
	claimInbox = `
INSERT INTO troupe.inbox (consumer_group, message_id, redrive) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING`

	// What a participant writes when attempts are used up, from the row that has it all.
	insertDeadLetter = `
INSERT INTO troupe.dead_letters (id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition,
                                 "offset", key, headers, payload, message_id, message_type, correlation_id, redrives,
                                 first_failed_at, last_failed_at)
SELECT @id, consumer_group, @handler, error_class, last_error, attempts, topic, topic_id, partition,
       "offset", key, headers, payload, @message_id, @message_type, @correlation_id, @redrives,
       first_failed_at, last_failed_at
FROM troupe.held
WHERE ` + thisHeld + `
ON CONFLICT DO NOTHING`
)

func release(ctx context.Context, tx pgx.Tx, p Place, cfg ReleaseConfig) (r ReleaseResult, err error) {
	k, err := lockHeld(ctx, tx, p, cfg.Group)
	if err != nil {
		return r, err
	}
	if k.Attempts == 0 {
		return r, errors.New("it comes next and was not tried yet: there is nothing to give up on")
	}
	hop := cfg.Hop
	if hop.IsZero() {
		if hop, err = topics.ParseHop(k.Group); err != nil {
			return r, fmt.Errorf("group %q does not say which hop it is of: name the hop", k.Group)
		}
	}
	r.Behind = k.Behind
	first, err := k.claim(ctx, tx)
	if err != nil {
		return r, err
	}
	var deadLetter *uuid.UUID
	if first {
		id := uuid.Must(uuid.NewV7())
		written, err := k.bury(ctx, tx, id, hop)
		if err != nil {
			return r, err
		}
		if written {
			r.DeadLetter, deadLetter = id, &id
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM troupe.held WHERE "+thisHeld, k.identity()); err != nil {
		return r, err
	}
	if _, err := tx.Exec(ctx, recordHeld, k.recordArgs(actionRelease, cfg.By, deadLetter)); err != nil {
		return r, err
	}
	_, err = tx.Exec(ctx, "SELECT pg_notify('"+heldChannel+"', $1)", k.Group)
	return r, err
}

// claim inserts the message's identity, so that it is not handled when it is delivered again. It says no where it has
// taken effect before.
func (k *HeldKey) claim(ctx context.Context, tx pgx.Tx) (first bool, err error) {
	if args, ok := recentArgs(k.MessageID); ok {
		var known bool
		args["group"], args["redrive"] = k.Group, k.row.redrive
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+recent+" AND consumer_group = @group AND redrive = @redrive)", args).
			Scan(&known)
		if err != nil || known {
			return false, err
		}
	}
	tag, err := tx.Exec(ctx, claimInbox, k.Group, indexed(k.MessageID), k.row.redrive)
	return tag.RowsAffected() == 1, err
}

// bury writes the dead letter, its copy and its event. It says no where there is one from before the inbox forgot.
func (k *HeldKey) bury(ctx context.Context, tx pgx.Tx, id uuid.UUID, hop topics.Hop) (written bool, err error) {
	m := &k.row.message
	handler := k.Group + "/" + k.Type
	args := k.identity()
	args["id"], args["handler"], args["message_id"] = id, readable(handler, 1024), indexed(k.MessageID)
	args["message_type"], args["redrives"] = readable(k.Type, 1024), k.row.redrive
	args["correlation_id"] = readable(k.correlation(), 1024)
	tag, err := tx.Exec(ctx, insertDeadLetter, args)
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	if err := tx.QueryRow(ctx, "SELECT payload FROM troupe.dead_letters WHERE id = $1", id).Scan(&k.row.payload); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, insertRedrive, k.copy(id, hop, handler)); err != nil {
		return false, err
	}
	out, err := outbox.New(outbox.Config{Source: hop.Name()})
	if err != nil {
		return false, err
	}
	e := outbox.Entry{
		Topic: hop.Events(), Outcome: envelope.Exhausted, IdempotencyKey: m.IdempotencyKey,
		SagaID: m.SagaID, SagaStep: m.SagaStep, SagaOperation: m.SagaOperation,
		Body: participant.Exhausted{
			DeadLetterID: id.String(), Type: k.Type, Handler: handler, Class: k.Class, Error: k.Error, Attempts: k.Attempts,
		},
	}
	if len(k.Key) > 0 && utf8.Valid(k.Key) && !bytes.Contains(k.Key, []byte{0}) {
		e.Key = string(k.Key)
	} else {
		e.KeyBytes = k.Key
	}
	cause := &envelope.Cause{Message: m.Message, Handler: handler, Redrive: k.row.redrive, At: k.row.messageTime}
	cause.Message.ID = k.MessageID
	return true, out.Write(envelope.WithCause(ctx, cause), tx, e)
}

func (k *HeldKey) correlation() string {
	if k.row.message.CorrelationID != "" {
		return k.row.message.CorrelationID
	}
	return k.MessageID
}

// copy is the row that carries the message to the dlq topic: its own headers and bytes, and those of the dead letter
// behind them. A payload that does not fit is left out, which a header says.
func (k *HeldKey) copy(id uuid.UUID, hop topics.Hop, handler string) pgx.NamedArgs {
	m := &k.row.message
	headers, payload := m.original(), k.row.payload
	for _, h := range [...]struct{ key, value string }{
		{participant.HeaderErrorsTopic, k.Place.Topic},
		{participant.HeaderErrorsPartition, strconv.Itoa(int(k.Place.Partition))},
		{participant.HeaderErrorsOffset, strconv.FormatInt(k.Place.Offset, 10)},
		{participant.HeaderErrorsGroup, k.Group},
		{participant.HeaderErrorsDeliveryCount, strconv.Itoa(k.Attempts)},
		{participant.HeaderErrorsMessage, k.Error},
		{participant.HeaderDeadLetterID, id.String()},
		{participant.HeaderMessageID, k.MessageID},
		{participant.HeaderClass, k.Class},
		{participant.HeaderHandler, handler},
		{participant.HeaderFirstFailed, k.FirstFailed.UTC().Format(time.RFC3339Nano)},
		{participant.HeaderLastFailed, k.LastFailed.UTC().Format(time.RFC3339Nano)},
		{participant.HeaderRedrives, strconv.Itoa(k.row.redrive)},
	} {
		headers = append(headers, envelope.Header{Key: h.key, Value: []byte(h.value)})
	}
	var fits envelope.Message
	omitted := ""
	switch {
	case fits.SetHeaders(headers) != nil:
		omitted, headers, payload = "headers,payload", headers[len(m.original()):], nil
	case size(k.Key, payload, headers) > maxSendBytes:
		omitted, payload = "payload", nil
	}
	if omitted != "" {
		headers = append(headers, envelope.Header{Key: participant.HeaderOmitted, Value: []byte(omitted)})
	}
	copied := id
	if own, err := uuid.Parse(m.ID); err == nil && own.String() == m.ID {
		copied = own
	}
	return pgx.NamedArgs{
		"id": copied, "topic": hop.DeadLetters(), "key": []byte(k.Key), "type": readable(k.Type, 1024), "payload": payload,
		"headers": envelope.MarshalHeaders(headers),
	}
}
