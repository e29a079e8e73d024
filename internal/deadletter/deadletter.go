// Package deadletter writes dead letters: for a participant whose attempts are used up, and for an operator who releases a held
// message as a dead letter. Both write the same, since sagas and redrives depend on it.
//
// A dead letter is a row in troupe.dead_letters, with the message's bytes; a copy of the message for the hop's dlq topic, and an
// exhausted event for its events topic, both through the outbox.
package deadletter

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/topics"
)

// maxErrorBytes bounds the error in rows, headers and events.
const maxErrorBytes = 2000

var (
	//go:embed sql/insert_dead_letter.sql
	insertDeadLetter string
	//go:embed sql/copy_dead_letter.sql
	copyDeadLetter string
)

// A Letter is a message that becomes a dead letter.
type Letter struct {
	ID string // troupe.dead_letters.id

	Message   envelope.Message  // Topic is the message's first topic, ID its identity, never empty
	Headers   []envelope.Header // as received; the first of them, if Stored is set
	Stored    []byte            // all headers as troupe.held has them, if they are too many to decode; else nil
	TopicID   uuid.UUID
	Partition int32
	Offset    int64
	At        time.Time // the record's timestamp
	Redrive   int       // how often its group redrove it

	Handler  string // group/type, group/deadline.name, group/all; the group alone if no handler matched
	Class    string
	Error    string
	Attempts int
	// FirstFailed and LastFailed are times of the database's clock. Nil: now.
	FirstFailed, LastFailed *time.Time
}

// A Writer writes the dead letters of one consumer group.
type Writer struct {
	Group   string
	Hop     topics.Hop     // of the topics that the copy and the event go to
	Outbox  *outbox.Outbox // sets the event's source
	Profile Profile
	// Exhausted makes the event's body, which is JSON for any codec of the flow.
	Exhausted func(Exhausted) any
}

// Exhausted holds the fields of an exhausted event's body. They are the fields of participant.Exhausted.
type Exhausted struct {
	DeadLetterID string
	Type         string
	Handler      string
	Class        string
	Error        string
	Attempts     int
}

// Write adds the row, the copy and the event to tx. written is false if there is a dead letter with the same topic id, partition
// and offset already: the inbox has forgotten the message since.
func (w Writer) Write(ctx context.Context, tx pgx.Tx, l Letter) (written bool, err error) {
	l.Error = pgtext.Readable(l.Error, maxErrorBytes)
	var first, last time.Time
	row := w.row(l)
	ascii := tx.Conn().PgConn().ParameterStatus("server_encoding") != "UTF8" // which may lack some of their characters
	if ascii {
		for _, column := range []string{"error", "message_type", "correlation_id"} {
			row[column] = pgtext.ASCII(row[column].(string))
		}
	}
	err = tx.QueryRow(ctx, insertDeadLetter, row).Scan(&first, &last)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.FirstFailed, l.LastFailed = &first, &last
	if len(l.Message.Key) > MaxBytes { // of a local topic: a row with it and more headers would be larger than the outbox takes
		l.Message.Key = nil
	}
	copied := w.copy(l)
	if ascii {
		copied["type"] = pgtext.ASCII(copied["type"].(string))
	}
	if err := queue(ctx, tx, copyDeadLetter, copied); err != nil {
		return false, err
	}
	e := Reply(w.Hop, l.Message)
	e.Outcome = envelope.Exhausted
	encoded, err := envelope.JSONCodec{}.Encode(e.Topic, w.Exhausted(Exhausted{
		DeadLetterID: l.ID, Type: pgtext.Readable(l.Message.Type, 1024), Handler: l.Handler, Class: l.Class, Error: l.Error, Attempts: l.Attempts,
	}))
	if err != nil {
		return false, err
	}
	e.Payload, e.Type, e.ContentType = encoded.Payload, encoded.Type, encoded.ContentType
	cause := &envelope.Cause{Message: l.Message, Handler: l.Handler, Redrive: l.Redrive, At: l.At}
	return true, w.Outbox.Write(envelope.WithCause(ctx, cause), tx, e)
}

// queue adds a statement to the batch of a handler's transaction; in any other transaction it executes the statement.
func queue(ctx context.Context, tx pgx.Tx, sql string, args pg.Args) error {
	if q, ok := tx.(interface{ QueueBatch(*pgx.Batch) error }); ok {
		var b pgx.Batch
		b.Queue(sql, args)
		return q.QueueBatch(&b)
	}
	_, err := tx.Exec(ctx, sql, args)
	return err
}

func (w Writer) row(l Letter) pg.Args {
	correlation := l.Message.CorrelationID
	if correlation == "" {
		correlation = l.Message.ID
	}
	return pg.Args{
		"id": l.ID, "group": w.Group, "handler": pgtext.Readable(l.Handler, 1024), "class": l.Class, "error": l.Error,
		"attempts": l.Attempts, "topic": l.Message.Topic, "topic_id": l.TopicID, "partition": l.Partition, "offset": l.Offset,
		"key": l.Message.Key, "headers": l.storedHeaders(), "payload": l.Message.Payload,
		"message_id": pgtext.Indexable(l.Message.ID), "message_type": pgtext.Readable(l.Message.Type, 1024),
		"correlation_id": pgtext.Readable(correlation, 1024), "redrives": l.Redrive,
		"first_failed": l.FirstFailed, "last_failed": l.LastFailed,
	}
}

// storedHeaders returns all headers of l as its row has them.
func (l Letter) storedHeaders() []byte {
	if l.Stored != nil {
		return l.Stored
	}
	return marshal(l.Headers)
}

// marshal never returns nil, which the columns refuse.
func marshal(hs []envelope.Header) []byte {
	if b := envelope.MarshalHeaders(hs); b != nil {
		return b
	}
	return []byte{}
}
