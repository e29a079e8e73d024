package timeline

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/outboxrow"
)

var (
	//go:embed sql/read_held.sql
	readHeld string
	//go:embed sql/read_dead_letters.sql
	readDeadLetters string
	//go:embed sql/read_outbox.sql
	readOutbox string
	//go:embed sql/read_pause.sql
	readPause string
)

// rowLimit limits the rows that are read of one table.
const rowLimit = 1000

// databases reads all databases in parallel, and adds their entries in the order of the configuration.
func (r *reading) databases(ctx context.Context) {
	looks := make([]look, len(r.cfg.Databases))
	var all sync.WaitGroup
	for i, d := range r.cfg.Databases {
		looks[i] = look{Database: d, subject: r.subject, payloads: r.payloads}
		all.Go(func() {
			limited, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
			defer cancel()
			looks[i].read(limited)
		})
	}
	all.Wait()
	for _, l := range looks {
		for _, e := range l.entries {
			r.add(e)
		}
		r.timeline.Unseen = append(r.timeline.Unseen, l.unseen...)
		r.paused[l.Name] = l.paused
	}
}

// A look reads one database and holds the result.
type look struct {
	Database
	subject  string
	payloads payloads
	entries  []Entry
	unseen   []Unseen
	paused   string
}

// read reads the tables in one transaction, so that a message that moves between two tables is seen in one of them. If one table
// cannot be read, the others still are.
func (l *look) read(ctx context.Context) {
	miss := func(what string, why error) { l.unseen = append(l.unseen, missing(what, why)) }
	tx, err := l.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		miss("database "+l.Name, err)
		return
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(ending)
	}()
	for _, table := range []struct {
		name string
		sql  string
		scan func(context.Context, pgx.Rows) error
	}{
		{"troupe.outbox", readOutbox, l.outboxRow},
		{"troupe.held", readHeld, l.heldRow},
		{"troupe.dead_letters", readDeadLetters, l.deadLetterRow},
	} {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint: an error ends the reading of one table only
			rows, err := tx.Query(ctx, table.sql, pgx.NamedArgs{
				"text": l.subject, "bytes": []byte(l.subject), "id": idOf(l.subject), "payload_limit": payloadLimit, "row_limit": rowLimit,
			})
			if err != nil {
				return err
			}
			n := 0
			for rows.Next() {
				if n++; err == nil {
					err = table.scan(ctx, rows)
				}
			}
			if n == rowLimit && err == nil {
				miss(table.name+" of "+l.Name, fmt.Errorf("more than %d rows", rowLimit))
			}
			return errors.Join(err, rows.Err())
		})
		if err != nil {
			miss(table.name+" of "+l.Name, admin.Explain(err, "docs/trace.md"))
		}
	}
	if slices.ContainsFunc(l.entries, func(e Entry) bool { return e.Outbox != nil && e.Outbox.Status == "pending" }) {
		l.paused = paused(ctx, tx)
	}
}

// paused returns the time since when the relays are paused, the operator and the reason. It returns "" if they are not paused, or
// if this cannot be read: then an unpublished row is explained without it.
func paused(ctx context.Context, tx pgx.Tx) string {
	var since time.Time
	var by, why string
	if err := tx.QueryRow(ctx, readPause).Scan(&since, &by, &why); err != nil {
		return ""
	}
	return fmt.Sprintf("%s by %s: %s", moment(since), by, why)
}

// add adds an entry of a statement. The statements search headers and columns by bytes, and may find the subject in another
// field.
func (l *look) add(e *Entry) {
	if e.concerns(l.subject) {
		l.entries = append(l.entries, *e)
	}
}

// idOf parses a text as an id. It returns nil if the text is none.
func idOf(text string) *uuid.UUID {
	id, err := uuid.Parse(text)
	if err != nil {
		return nil
	}
	return &id
}

func (l *look) outboxRow(ctx context.Context, rows pgx.Rows) error {
	var row outboxrow.Row
	var size int
	var wait float64
	at := Row{Database: l.Name}
	err := rows.Scan(append(row.Fields(), &size, &at.Status, &at.Attempts, &at.MaxAttempts, &wait, &at.LastError,
		&at.Behind, &at.BehindStatus, &at.BehindError)...)
	if err != nil {
		return err
	}
	at.NextTry, at.Position, at.Topic = seconds(wait), row.Position, row.Topic
	m, err := row.Message(outboxrow.Defaults{Source: l.Name})
	if err != nil { // its headers cannot be read, and for this reason the relay will park it
		m.ID, m.Type, m.Time = row.ID.String(), row.Type, row.CreatedAt
	}
	e := l.payloads.entry(ctx, m, row.Payload, size)
	if e.Redrive > 0 || e.Kind == Retry {
		e.At = row.CreatedAt
	}
	e.Outbox = &at
	if e.Kind == DeadLetter {
		letterOf(&e, m, row.CreatedAt)
	}
	l.add(&e)
	return nil
}

func (l *look) heldRow(ctx context.Context, rows pgx.Rows) error {
	var key, headers, payload []byte
	var size int
	var messageTime time.Time
	var failed *time.Time
	var wait float64
	at := Attempt{Database: l.Name}
	var group string
	err := rows.Scan(&group, &at.Topic, &at.Partition, &at.Offset, &key, &headers, &payload, &size, &messageTime, &at.Since,
		&failed, &at.Attempts, &at.MaxAttempts, &wait, &at.Class, &at.LastError, &at.Behind, &at.Failed)
	if err != nil {
		return err
	}
	at.NextTry = seconds(wait)
	e := l.payloads.entry(ctx, stored(at.Topic, key, headers), payload, size)
	e.Kind, e.Hop, e.Held, e.At = Held, group, &at, at.Since
	e.CausationID, e.Outcome = "", ""
	if failed != nil {
		e.At = *failed
	}
	l.add(&e)
	return nil
}

func (l *look) deadLetterRow(ctx context.Context, rows pgx.Rows) error {
	var key, headers, payload []byte
	var size int
	var e Entry
	var group, id, typ, correlation string
	var redrives int
	var created time.Time
	at := Letter{Database: l.Name}
	err := rows.Scan(&at.ID, &group, &at.Handler, &at.Class, &at.Error, &at.Attempts, &at.Topic, &at.Partition, &at.Offset,
		&key, &headers, &payload, &size, &id, &typ, &correlation, &redrives, &at.Status, &at.FirstFailed, &created)
	if err != nil {
		return err
	}
	e = l.payloads.entry(ctx, stored(at.Topic, key, headers), payload, size)
	e.Kind, e.Hop, e.DeadLetter, e.At = DeadLetter, group, &at, created
	e.ID, e.Type, e.CorrelationID, e.Redrive = id, typ, correlation, redrives
	e.CausationID, e.Outcome = "", ""
	l.add(&e)
	return nil
}

// stored returns the message of a row of troupe.held or troupe.dead_letters. Headers that cannot be read are left out.
func stored(topic string, key, headers []byte) envelope.Message {
	m := envelope.Message{Topic: topic, Key: key}
	if hs, err := envelope.UnmarshalHeaders(headers); err == nil {
		_ = m.SetHeaders(hs)
	}
	return m
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
