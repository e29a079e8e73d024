package participant

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
)

// Headers of the copy on the dlq topic, all of them text. The first six are those of KIP-1191. Those that a message
// brings along from an earlier life are replaced.
const (
	HeaderErrorsTopic         = errorsPrefix + "topic"
	HeaderErrorsPartition     = errorsPrefix + "partition"
	HeaderErrorsOffset        = errorsPrefix + "offset"
	HeaderErrorsGroup         = errorsPrefix + "group"
	HeaderErrorsDeliveryCount = errorsPrefix + "delivery.count" // attempts
	HeaderErrorsMessage       = errorsPrefix + "message"        // the last error

	HeaderDeadLetterID = deadLetterPrefix + "id" // troupe.dead_letters.id
	// HeaderMessageID is the message's own ce_id, which the copy's ce_id is too where it is a UUID.
	HeaderMessageID   = deadLetterPrefix + "message.id"
	HeaderClass       = deadLetterPrefix + "class"
	HeaderHandler     = deadLetterPrefix + "handler"
	HeaderFirstFailed = deadLetterPrefix + "first.failed" // RFC 3339
	HeaderLastFailed  = deadLetterPrefix + "last.failed"  // RFC 3339
	HeaderRedrives    = deadLetterPrefix + "redrives"
	// HeaderOmitted says that the copy is too large for the outbox and only points to the row: "payload", or
	// "headers,payload".
	HeaderOmitted = deadLetterPrefix + "omitted"

	errorsPrefix     = "__dlq.errors."
	deadLetterPrefix = "__troupe.dlq."
)

// untyped is the copy's type where the message had none.
const untyped = "troupe.DeadLetter"

// maxCopyBytes is the most that key, headers and payload of a copy may have: a producer's usual limit for a batch is
// 1,000,012 bytes, and the message itself may have come from one that allows more.
const maxCopyBytes = 990_000

var (
	//go:embed sql/insert_dead_letter.sql
	insertDeadLetter string
	//go:embed sql/copy_dead_letter.sql
	copyDeadLetter string
)

// bury makes m a dead letter: its inbox row, its row in troupe.dead_letters, the copy for the topic, the exhausted
// event and the end of its held row are one transaction. Its errors say nothing about m.
func (w *runner) bury(m *message, f failure) error {
	d := w.delivery(m)
	d.Class, d.Err, d.Outcome = f.class, f.err, envelope.Exhausted
	letter := deadLetter{message: m, failure: f, id: envelope.NewID()}
	d.Took = time.Since(m.began)
	if err := w.writeLetter(&letter, d); err != nil {
		if errors.Is(err, errFenced) {
			return err
		}
		return database(err)
	}
	if !letter.written {
		m.passed = Duplicate
		return nil // it has taken effect or is a dead letter already
	}
	w.p.cfg.Log.Error().Err(f.err).Str("class", string(f.class)).Str("handler", d.Handler).Str("key", readable(string(m.Key), 200)).
		Str("message", m.place()).Str("message_id", m.id).Str("dead_letter", letter.id).Int("attempts", d.Attempt).
		Msg("parked: " + why(f.class))
	tell(w.p.cfg.Hooks.AfterCommit, d)
	return nil
}

func (w *runner) writeLetter(l *deadLetter, d Delivery) error {
	u, err := w.start([]*message{l.message}, &l.failure)
	if err != nil {
		return err
	}
	defer u.tx.rollback(w.ctx)
	for range u.first {
		if err := w.fill(u.tx, l); err != nil {
			return err
		}
		tell(w.p.cfg.Hooks.BeforeCommit, d)
	}
	return u.commit()
}

func why(c Class) string {
	switch c {
	case Permanent:
		return "trying again cannot help"
	case Poison:
		return "the message cannot be read"
	}
	return "attempts exhausted"
}

// deadLetter is one in the making.
type deadLetter struct {
	*message
	failure
	id          string
	first, last time.Time // failed
	written     bool      // false where the message has one from before its inbox row was forgotten
}

// fill adds the row, the copy and the event to tx.
func (w *runner) fill(tx pgx.Tx, l *deadLetter) error {
	ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
	defer cancel()
	err := tx.QueryRow(ctx, insertDeadLetter, w.deadLetterArgs(l)).Scan(&l.first, &l.last)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	l.written = true
	copied := w.p.copyArgs(l)
	if err := Queue(ctx, tx, copyDeadLetter, copied); err != nil {
		return err
	}
	e := w.p.reply(l.message)
	e.Outcome = envelope.Exhausted
	encoded, err := envelope.JSONCodec{}.Encode(e.Topic, Exhausted{
		DeadLetterID: l.id, Type: l.Type, Handler: l.handlerName(w.p.cfg.Group), Class: string(l.class), Error: l.text(),
		Attempts: l.attempts() + 1,
	})
	if err != nil {
		return err
	}
	e.Payload, e.Type, e.ContentType = encoded.Payload, encoded.Type, encoded.ContentType
	return w.p.out.Write(envelope.WithCause(ctx, l.cause(w.p.cfg.Group)), tx, e)
}

func (w *runner) deadLetterArgs(l *deadLetter) pg.Args {
	args := w.p.rowArgs(l.message)
	args["id"] = l.id
	args["handler"] = readable(l.handlerName(w.p.cfg.Group), 1024)
	args["class"], args["error"] = string(l.class), l.text()
	args["attempts"], args["redrives"] = l.attempts()+1, l.redrive
	args["message_id"], args["message_type"] = l.message.id, readable(l.Type, 1024)
	args["correlation_id"] = readable(l.correlation(), 1024)
	args["first_failed"] = l.again.firstFailed
	if l.held != nil {
		args["first_failed"] = l.held.firstFailed
	}
	return args
}

// text is the last error as rows and headers take it.
func (l *deadLetter) text() string { return readable(l.err.Error(), maxErrorBytes) }

// ours are those headers of the copy that this package adds.
func (l *deadLetter) ours(group string) []envelope.Header {
	text := func(key, value string) envelope.Header { return envelope.Header{Key: key, Value: []byte(value)} }
	return []envelope.Header{
		text(HeaderErrorsTopic, l.Topic),
		text(HeaderErrorsPartition, strconv.Itoa(int(l.partition))),
		text(HeaderErrorsOffset, strconv.FormatInt(l.offset, 10)),
		text(HeaderErrorsGroup, group),
		text(HeaderErrorsDeliveryCount, strconv.Itoa(l.attempts()+1)),
		text(HeaderErrorsMessage, l.text()),
		text(HeaderDeadLetterID, l.id),
		text(HeaderMessageID, l.ID),
		text(HeaderClass, string(l.class)),
		text(HeaderHandler, l.handlerName(group)),
		text(HeaderFirstFailed, l.first.UTC().Format(time.RFC3339Nano)),
		text(HeaderLastFailed, l.last.UTC().Format(time.RFC3339Nano)),
		text(HeaderRedrives, strconv.Itoa(l.redrive)),
	}
}

// copyArgs is the row that carries the message to the dlq topic: its own headers and bytes, and ours behind them. It is
// written as plain columns, since outbox.Write would give it attributes of its own. What does not fit is left out and
// named.
func (p *Participant) copyArgs(l *deadLetter) pg.Args {
	args := pg.Args{
		"id": (*uuid.UUID)(nil), "topic": p.cfg.Hop.DeadLetters(), "key": l.Key, "type": readable(l.Type, 1024), "payload": l.Payload,
	}
	if l.Type == "" {
		args["type"] = untyped
	}
	if id, err := uuid.Parse(l.ID); err == nil && id.String() == l.ID {
		args["id"] = &id
	}
	omit := func(what string) envelope.Header { return envelope.Header{Key: HeaderOmitted, Value: []byte(what)} }
	profile := p.cfg.DeadLetterHeaders
	ours := append(l.ours(p.cfg.Group), profile.headers(l, p.cfg.Group)...)
	headers := append(l.original(profile), ours...)
	var fits envelope.Message
	switch {
	case fits.SetHeaders(headers) != nil:
		headers, args["payload"] = append(ours, omit("headers,payload")), nil
	case size(l.Key, l.Payload, headers) > maxCopyBytes:
		headers, args["payload"] = append(headers, omit("payload")), nil
	}
	args["headers"] = marshal(headers)
	return args
}

// original are m's headers without those of an earlier dead letter.
func (m *message) original(profile HeaderProfile) []envelope.Header {
	all := m.headers()
	hs := make([]envelope.Header, 0, len(all)+16)
	for _, h := range all {
		if !strings.HasPrefix(h.Key, errorsPrefix) && !strings.HasPrefix(h.Key, deadLetterPrefix) && !profile.owns(h.Key) {
			hs = append(hs, h)
		}
	}
	return hs
}

func size(key, payload []byte, headers []envelope.Header) int {
	n := len(key) + len(payload)
	for _, h := range headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// correlation is what m's emissions get.
func (m *message) correlation() string {
	if m.CorrelationID != "" {
		return m.CorrelationID
	}
	return m.ID
}
