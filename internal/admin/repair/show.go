package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A Letter is a dead letter with all details. Its JSON is the output of troupe dlq show.
type Letter struct {
	DeadLetter
	Headers    []Header `json:"headers"`                  // the original ones
	BadHeaders string   `json:"bad_headers,omitempty"`    // the reason why they cannot be read
	Payload    Payload  `json:"payload"`                  // the original one
	Edit       *Payload `json:"edited_payload,omitempty"` // sent instead by a redrive
	History    []Action `json:"history"`                  // the last 100, oldest first
	Earlier    bool     `json:"earlier,omitempty"`        // the history has earlier actions
}

// A Header is a header of the message.
type Header struct {
	Key   string `json:"key"`
	Value Key    `json:"value"` // null differs from empty
}

// An Action is a row of troupe.repairs.
type Action struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"` // as the caller supplied it
	Role   string    `json:"role"`  // the database role
	Action string    `json:"action"`
	Reason string    `json:"reason"`
	Before *Payload  `json:"before,omitempty"` // of an edit
	After  *Payload  `json:"after,omitempty"`
}

// These are the actions.
const (
	actionEdit    = "edit"
	actionRedrive = "redrive"
	actionDiscard = "discard"
	actionRetry   = "retry"
	actionRelease = "dead-letter"
	actionSkip    = "skip"
)

// Show returns one dead letter. The error wraps ErrNotFound if there is none.
func (d *Desk) Show(ctx context.Context, id uuid.UUID) (*Letter, error) {
	l := &Letter{Headers: []Header{}}
	var headers, payload, edited []byte
	var topicID uuid.UUID
	err := d.pool.QueryRow(ctx, "SELECT "+letterColumns+", topic_id, headers, payload, edited_payload FROM troupe.dead_letters WHERE id = $1", id).
		Scan(append(l.fields(), (*[16]byte)(&topicID), &headers, &payload, &edited)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("dead letter %s: %w in this database", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("dead letter %s: %w", id, explain(err))
	}
	m, err := read(headers, topicID, l.Partition, l.Offset)
	if err != nil {
		l.BadHeaders = err.Error()
	}
	for _, h := range m.headers {
		l.Headers = append(l.Headers, Header{h.Key, h.Value})
	}
	l.Payload = d.show(ctx, m.ContentType, payload)
	if edited != nil {
		edit := d.show(ctx, m.ContentType, edited)
		l.Edit = &edit
	}
	l.History, err = d.history(ctx, id, m.ContentType)
	if err != nil {
		return nil, fmt.Errorf("dead letter %s: history: %w", id, err)
	}
	if n := len(l.History) - mostActions; n > 0 {
		l.History, l.Earlier = l.History[n:], true
	}
	return l, nil
}

// mostActions limits the history.
const mostActions = 100

// mostHistory limits the bytes of the payloads of the edits that are read. Each edit may have 8 MiB, and the first one replaces a payload of up
// to 100 MiB.
const mostHistory = 32 << 20

// history returns one action more than mostActions, if there is one.
func (d *Desk) history(ctx context.Context, id uuid.UUID, contentType string) ([]Action, error) {
	return query(ctx, d, `
		SELECT at, left(actor, 200), role, action, left(reason, 2000),
		       CASE WHEN bytes <= @most THEN payload_before END, CASE WHEN bytes <= @most THEN payload_after END,
		       coalesce(octet_length(payload_before), 0), coalesce(octet_length(payload_after), 0), bytes > @most
		FROM (SELECT *, sum(coalesce(octet_length(payload_before), 0)::bigint + coalesce(octet_length(payload_after), 0)) OVER (ORDER BY position DESC) AS bytes
		      FROM (SELECT * FROM troupe.repairs WHERE dead_letter_id = @id ORDER BY position DESC LIMIT @actions + 1) AS latest) AS r
		ORDER BY position`, pgx.NamedArgs{"id": id, "most": mostHistory, "actions": mostActions}, func(row pgx.CollectableRow) (a Action, err error) {
		var before, after []byte
		var beforeBytes, afterBytes int
		var large bool
		if err := row.Scan(&a.At, &a.Actor, &a.Role, &a.Action, &a.Reason, &before, &after, &beforeBytes, &afterBytes, &large); err != nil {
			return a, err
		}
		if a.Action == actionEdit && large {
			a.Before, a.After = leftOut(contentType, beforeBytes), leftOut(contentType, afterBytes)
		} else if a.Action == actionEdit {
			was, is := d.show(ctx, contentType, before), d.show(ctx, contentType, after)
			a.Before, a.After = &was, &is
		}
		return a, nil
	})
}

// leftOut returns a payload of an edit that was not read.
func leftOut(contentType string, size int) *Payload {
	return &Payload{
		Format: formatOf(contentType, []byte{}), Bytes: size,
		Note: fmt.Sprintf("not read: the payloads of this edit and of the later ones have more than %d MiB", mostHistory>>20),
	}
}
