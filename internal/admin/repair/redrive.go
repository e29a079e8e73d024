package repair

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/inbox"
	"github.com/troupe-go/troupe/internal/outboxrow"
)

// RedriveConfig configures a Redrive. By.Name is required.
type RedriveConfig struct {
	By admin.Actor
	// Rate limits the dead letters per second, so as not to overload the hop that has just failed. Default: 50; negative: no
	// limit.
	Rate float64
	// SameKey leaves an edited message the idempotency key of the original. It is for an edit that does not change the request: a
	// service that has answered the original repeats its answer.
	SameKey bool
	// Progress is called after every dead letter, if it is set.
	Progress func(RedriveResult)
}

// A RedriveResult is the progress of a Redrive.
type RedriveResult struct {
	Total    int       `json:"total"` // number of dead letters selected at the start
	Redriven int       `json:"redriven"`
	Refused  int       `json:"refused"`
	Refusals []Refusal `json:"refusals"` // the first 100
	// Before is the limit that this Redrive used: without ids it takes only dead letters from before it. Set in a Filter it lets a second
	// call continue an interrupted one, without the messages that have failed again since, and without dead letters from a time in the future.
	Before time.Time `json:"before"`
}

// A Refusal is a dead letter that was left unchanged, with the reason.
type Refusal struct {
	ID  uuid.UUID `json:"id"`
	Err string    `json:"error"`
}

const maxRefusals = 100

// Redrive sends the selected dead letters again to their original topics, in the order in which they failed, each in its own
// transaction. After a kill or a cancellation the completed ones stay redriven, and the same call continues with the rest. With
// an error of the database it also returns the progress.
//
// A dead letter that cannot be redriven is refused and stays open. Of those selected by id, one that does not exist or is not
// open is refused, too.
func (d *Desk) Redrive(ctx context.Context, f Filter, cfg RedriveConfig) (RedriveResult, error) {
	var r RedriveResult
	err := d.redrive(ctx, f, cfg, &r)
	if err != nil {
		return r, fmt.Errorf("redrive: %w", err)
	}
	return r, nil
}

func (d *Desk) redrive(ctx context.Context, f Filter, cfg RedriveConfig, r *RedriveResult) (err error) {
	if err := cfg.By.Check(); err != nil {
		return err
	}
	if err := f.checkForAction(); err != nil {
		return err
	}
	r.Before, r.Refusals = f.Before, []Refusal{}
	if r.Before.IsZero() {
		if r.Before, err = d.now(ctx); err != nil {
			return err
		}
	}
	if f.IDs == nil { // a dead letter that is named by its id may have a created_at in the future
		f.Before = r.Before
	}
	if r.Total, err = d.Count(ctx, f); err != nil {
		return err
	}
	for _, id := range f.IDs { // the operator has named them one by one, so report each
		why, err := d.closed(ctx, id)
		if err != nil {
			return err
		}
		if why != nil {
			r.refuse(id, why)
		}
	}
	pace, end := admin.NewPace(cfg.Rate)
	defer end()
	var last *letter // the last one that was taken; nil: none yet
	for {
		if err := pace(ctx); err != nil {
			return err
		}
		var refusal error
		next, err := d.redriveNext(ctx, f, last, cfg, &refusal)
		if err != nil || next == nil {
			return err
		}
		if last = next; refusal == nil {
			r.Redriven++
		} else {
			r.refuse(next.id, refusal)
		}
		if cfg.Progress != nil {
			cfg.Progress(*r)
		}
	}
}

func (r *RedriveResult) refuse(id uuid.UUID, why error) {
	if r.Refused++; r.Refused <= maxRefusals {
		r.Refusals = append(r.Refusals, Refusal{id, why.Error()})
	}
}

// closed returns the reason why the dead letter of that id cannot be acted on, or nil if it is open.
func (d *Desk) closed(ctx context.Context, id uuid.UUID) (why, err error) {
	err = d.act(ctx, func(tx pgx.Tx) error {
		var status Status
		err := tx.QueryRow(ctx, "SELECT status FROM troupe.dead_letters WHERE id = $1", id).Scan(&status)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			why, err = fmt.Errorf("%w in this database", ErrNotFound), nil
		case err == nil && status != Open:
			why = notOpen(ctx, tx, id, status)
		}
		return err
	})
	return why, err
}

// A letter has the columns of a dead letter that a redrive and an edit need.
type letter struct {
	id            uuid.UUID
	group, topic  string
	topicID       uuid.UUID
	partition     int32
	offset        int64
	key           []byte
	headers       []byte
	payload       []byte
	edited        []byte
	correlationID string
	messageID     string
	redrives      int
	lastFailed    time.Time
}

const selectLetter = `
SELECT id, consumer_group, topic, topic_id, partition, "offset", key, headers, payload, edited_payload, correlation_id,
       message_id, redrives, last_failed_at
FROM troupe.dead_letters`

func (l *letter) fields() []any {
	return []any{
		(*[16]byte)(&l.id), &l.group, &l.topic, (*[16]byte)(&l.topicID), &l.partition, &l.offset, &l.key, &l.headers, &l.payload, &l.edited,
		&l.correlationID, &l.messageID, &l.redrives, &l.lastFailed,
	}
}

const insertRedrive = `
INSERT INTO troupe.outbox (id, topic, key_bytes, type, raw_headers, payload)
VALUES (@id, @topic, @key, @type, @headers, @payload)`

// redriveNext redrives the first dead letter after last. next is nil if there is none. A refusal leaves it unchanged. Two calls
// that redrive the same ones meet at the first that is open: one waits for the other's commit and then takes the next.
func (d *Desk) redriveNext(ctx context.Context, f Filter, last *letter, cfg RedriveConfig, refusal *error) (next *letter, err error) {
	where := f.conditions()
	if last != nil {
		where.add("(last_failed_at, id) > (@last_at, @last_id)", "last_at", last.lastFailed)
		where.args["last_id"] = last.id
	}
	err = d.act(ctx, func(tx pgx.Tx) error {
		var l letter
		err := tx.QueryRow(ctx, selectLetter+`
			WHERE `+where.String()+`
			ORDER BY last_failed_at, id
			LIMIT 1
			FOR UPDATE`, where.args).Scan(l.fields()...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		next = &l
		entry, err := l.entry(cfg.SameKey)
		if err != nil {
			*refusal = err
			return nil
		}
		args := recordArgs(actionRedrive, cfg.By)
		args["ids"] = []uuid.UUID{l.id}
		b := &pgx.Batch{}
		b.Queue(insertRedrive, entry)
		b.Queue("UPDATE troupe.dead_letters SET status = 'redriven' WHERE id = @id", pgx.NamedArgs{"id": l.id})
		b.Queue(recordLetters, args)
		b.Queue("SELECT pg_notify('" + outboxrow.Channel + "', '')")
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

// entry returns the outbox row. Its errors wrap ErrUnsendable.
func (l *letter) entry(sameKey bool) (pgx.NamedArgs, error) {
	refuse := func(format string, args ...any) (pgx.NamedArgs, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrUnsendable}, args...)...)
	}
	m, err := read(l.headers, l.topicID, l.partition, l.offset)
	switch {
	case err != nil:
		return refuse("no relay sends such headers and no participant reads them (%w): have the producer send it again "+
			"under a new ce_id, and discard this one", err)
	case m.Type == "" || strings.Contains(m.Type, "\x00"):
		return refuse("no handler can be for type %q: have the producer send it again with its ce_type, under a new ce_id, and discard this one",
			m.Type)
	}
	payload := l.payload
	if l.edited != nil {
		payload = l.edited
	}
	headers := l.redriven(m, payload, sameKey)
	var fits envelope.Message
	if err := fits.SetHeaders(headers); err != nil {
		return refuse("with the headers of a redrive it has too many (%w): have the producer send it again under a new ce_id, and discard this one",
			err)
	}
	if n := deadletter.Size(l.key, payload, headers); n > deadletter.MaxBytes {
		return refuse("key, headers and payload have %d bytes, and a relay sends at most %d: make the payload smaller by an "+
			"edit, or have the producer send it again under a new ce_id, and discard this one", n, deadletter.MaxBytes)
	}
	id := l.id // if the message's own id is no UUID, it is only in the headers
	if own, err := uuid.Parse(m.ID); err == nil && own.String() == m.ID {
		id = own
	}
	return pgx.NamedArgs{
		"id": id, "topic": l.topic, "key": l.key, "type": m.Type, "payload": payload, "headers": envelope.MarshalHeaders(headers),
	}, nil
}

// identity returns the message's identity in the inbox if the redriven message needs a header with it, because its own id and source would give it
// another identity. It returns "" if they do not, and if the message has that header already.
func (l *letter) identity(m message) string {
	if deadletter.RedriveIdentity(m.Extra) != "" {
		return ""
	}
	m.unnamed = l.messageID
	before := m.identity()
	if unnamedID.MatchString(m.ID) { // a participant added the id when it sent the message to a retry topic
		before = m.ID
	}
	after := m.Message
	after.ID, after.Source = m.id(), cmp.Or(m.Source, "a relay") // the relay fills in a source of its own; any text shows the difference
	if inbox.Identity(after) == before {
		return ""
	}
	return before
}

// redriven returns the message's own headers and the headers that give it a new identity. Attributes that a relay would fill in
// differently from the values that participants have seen are set explicitly.
func (l *letter) redriven(m message, payload []byte, sameKey bool) []envelope.Header {
	another := !sameKey && !bytes.Equal(payload, l.payload)
	var hs []envelope.Header
	for _, h := range m.original() {
		switch h.Key {
		case deadletter.HeaderRedrive, deadletter.HeaderRedriveGroup:
			continue
		case deadletter.HeaderRedriveEdit: // of an earlier edit
			if another {
				continue
			}
		}
		hs = append(hs, h)
	}
	add := func(key, value string) { hs = append(hs, envelope.Header{Key: key, Value: []byte(value)}) }
	if m.CorrelationID == "" && l.correlationID != "" {
		add(ce.HeaderCorrelationID, l.correlationID)
	}
	if m.ContentType == "" && formatOf("", payload) == formatAvro {
		add(ce.HeaderContentType, envelope.Avro)
	}
	add(deadletter.HeaderRedrive, strconv.Itoa(l.redrives+1))
	add(deadletter.HeaderRedriveGroup, l.group)
	if m.ID == "" {
		add(ce.HeaderID, l.messageID)
	}
	if identity := l.identity(m); identity != "" {
		add(deadletter.HeaderRedriveIdentity, identity)
	}
	if another {
		add(deadletter.HeaderRedriveEdit, deadletter.EditOf(payload))
	}
	return hs
}
