package timeline

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
)

var (
	//go:embed sql/read_held.sql
	readHeld string
	//go:embed sql/read_dead_letters.sql
	readDeadLetters string
	//go:embed sql/read_outbox.sql
	readOutbox string
)

// rowLimit is how many rows are taken of one table.
const rowLimit = 1000

// databases reads all of them, one after the other: there are few, and each answers at once or not at all.
func (r *reading) databases(ctx context.Context) {
	for _, d := range r.cfg.Databases {
		limited, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		r.database(limited, d)
		cancel()
	}
}

// database reads the tables in one transaction, so that a message that moves from one to another is in one of them. A
// table that cannot be read does not keep the others from being read.
func (r *reading) database(ctx context.Context, d Database) {
	tx, err := d.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		r.unseen("database "+d.Name, err)
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
		scan func(context.Context, string, pgx.Rows) error
	}{
		{"troupe.outbox", readOutbox, r.outboxRow},
		{"troupe.held", readHeld, r.heldRow},
		{"troupe.dead_letters", readDeadLetters, r.deadLetterRow},
	} {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint: an error ends the reading of one table
			rows, err := tx.Query(ctx, table.sql, pgx.NamedArgs{
				"text": r.subject, "bytes": []byte(r.subject), "payload_limit": payloadLimit, "row_limit": rowLimit,
			})
			if err != nil {
				return err
			}
			n := 0
			for rows.Next() {
				if n++; err == nil {
					err = table.scan(ctx, d.Name, rows)
				}
			}
			if n == rowLimit && err == nil {
				r.unseen(table.name+" of "+d.Name, fmt.Errorf("more than %d rows", rowLimit))
			}
			return errors.Join(err, rows.Err())
		})
		if err != nil {
			r.unseen(table.name+" of "+d.Name, explain(err))
		}
	}
}

// explain adds the remedy where there is one.
func explain(err error) error {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.Code {
	case "42P01", "3F000", "42703": // no such table, schema, column
		return fmt.Errorf("%w: the database lacks tables of Troupe, or has them of another version: see outbox-relay migrate", err)
	case "42501":
		return fmt.Errorf("%w: grant SELECT on the tables of schema troupe", err)
	}
	return err
}

func (r *reading) outboxRow(ctx context.Context, database string, rows pgx.Rows) error {
	var row outbox.Row
	var size int
	var wait float64
	at := Row{Database: database}
	err := rows.Scan(append(row.Fields(), &size, &at.Status, &at.Attempts, &at.MaxAttempts, &wait, &at.LastError,
		&at.Behind, &at.BehindStatus, &at.BehindError)...)
	if err != nil {
		return err
	}
	at.NextTry, at.Position, at.Topic = seconds(wait), row.Position, row.Topic
	m, err := row.Message(outbox.Defaults{Source: database})
	if err != nil { // its headers cannot be read, which is why it will be parked
		m.ID, m.Type, m.Time = row.ID.String(), row.Type, row.CreatedAt
	}
	e := r.message(ctx, m, row.Payload, size)
	if e.Redrive > 0 || e.Kind == Retry {
		e.At = row.CreatedAt
	}
	e.Outbox = &at
	if e.Kind == DeadLetter {
		letterOf(&e, m, row.CreatedAt)
	}
	if r.matches(&e) {
		r.add(e)
	}
	return nil
}

func (r *reading) heldRow(ctx context.Context, database string, rows pgx.Rows) error {
	var key, headers, payload []byte
	var size int
	var messageTime time.Time
	var failed *time.Time
	var wait float64
	at := Attempt{Database: database}
	var group string
	err := rows.Scan(&group, &at.Topic, &at.Partition, &at.Offset, &key, &headers, &payload, &size, &messageTime, &at.Since,
		&failed, &at.Attempts, &at.MaxAttempts, &wait, &at.Class, &at.LastError, &at.Behind, &at.Failed)
	if err != nil {
		return err
	}
	at.NextTry = seconds(wait)
	e := r.message(ctx, stored(at.Topic, key, headers), payload, size)
	e.Kind, e.Hop, e.Held, e.At = Held, group, &at, at.Since
	e.CausationID, e.Outcome = "", ""
	if failed != nil {
		e.At = *failed
	}
	if r.matches(&e) {
		r.add(e)
	}
	return nil
}

func (r *reading) deadLetterRow(ctx context.Context, database string, rows pgx.Rows) error {
	var key, headers, payload []byte
	var size int
	var e Entry
	var group, id, typ, correlation string
	var redrives int
	var created time.Time
	at := Letter{Database: database}
	err := rows.Scan(&at.ID, &group, &at.Handler, &at.Class, &at.Error, &at.Attempts, &at.Topic, &at.Partition, &at.Offset,
		&key, &headers, &payload, &size, &id, &typ, &correlation, &redrives, &at.Status, &at.FirstFailed, &created)
	if err != nil {
		return err
	}
	e = r.message(ctx, stored(at.Topic, key, headers), payload, size)
	e.Kind, e.Hop, e.DeadLetter, e.At = DeadLetter, group, &at, created
	e.ID, e.Type, e.CorrelationID, e.Redrive = id, typ, correlation, redrives
	e.CausationID, e.Outcome = "", ""
	if r.matches(&e) {
		r.add(e)
	}
	return nil
}

// stored is a message as a row of troupe.held or troupe.dead_letters has it. Headers that cannot be read are left out.
func stored(topic string, key, headers []byte) envelope.Message {
	m := envelope.Message{Topic: topic, Key: key}
	if hs, err := envelope.UnmarshalHeaders(headers); err == nil {
		_ = m.SetHeaders(hs)
	}
	return m
}

// message is what all entries have.
func (r *reading) message(ctx context.Context, m envelope.Message, payload []byte, size int) Entry {
	e := Entry{
		At: m.Time, ID: m.ID, Type: m.Type, Key: string(m.Key), Outcome: m.Outcome,
		CorrelationID: m.CorrelationID, CausationID: m.CausationID, Cause: -1,
	}
	if e.CorrelationID == "" {
		e.CorrelationID = e.ID // which is what those that follow from it get
	}
	e.Kind, e.Hop = kindOf(m.Topic)
	for _, h := range m.Extra {
		if h.Key == participant.HeaderRedrive {
			e.Redrive = number(h.Value)
		}
	}
	r.payloads.show(ctx, &e, m.ContentType, payload, size)
	return e
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
