// Package outbox writes a service's outgoing messages to a table, in the transaction that changes the service's own rows:
// both are committed, or neither.
//
//	service ──┬─ its own rows ─┐
//	          └─ troupe.outbox ┴─ one commit ──► relay ──► Kafka
//
// Promised: an entry whose transaction committed is published at least once, under one id. An entry whose transaction rolled
// back is never published. Entries with the same key are published in the order of their positions, if their writers are
// serialised by their own data (a row lock or a version check taken before Write).
//
// Not promised: order between keys, and order between two transactions that write the same key if nothing makes one wait for
// the other.
//
//	failure                              effect
//	crash before the commit              neither rows nor messages
//	connection lost during the commit    both or neither; only a look at the rows shows which
//	crash after the commit               the relay publishes the messages when it runs
//	no relay runs                        entries wait; the table grows; nothing is lost
//	Write fails                          Postgres has aborted the transaction, or Write sent nothing
//	partitions run out                   inserts fail; the relay creates partitions in advance and measures the positions left
//
// The relay that published rows removes them: under poll it deletes each row once Kafka has acknowledged the row, under wal it drops whole
// partitions. Package internal/retention documents when, and the effect of each failure.
//
// In a database that is not in UTF-8 this package writes keys and headers that are not ASCII to key_bytes and raw_headers, as bytes.
//
// Programs in any language can write with a plain statement; all columns but topic, type and payload have a default:
//
//	INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('order.payment.commands', 'o-1', 'ChargePayment', '{…}')
//
// A service needs the rights that `outbox-relay grants writer` prints. They allow inserts by column, so that a service cannot
// forge a position or a transaction id.
//
// This package does not use Kafka.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/outboxrow"
)

// ErrTooLarge is wrapped by the error for a payload above Config.MaxBytes.
var ErrTooLarge = errors.New("larger than the outbox takes")

// maxPayload is the largest Config.MaxBytes. The table's constraint outbox_size allows a little more for the headers.
const maxPayload = 8_000_000

// Config configures an Outbox. The zero value works: payloads are encoded as JSON, the relay sets ce_source to its service name, and
// commits send a Postgres notification that wakes the relay.
type Config struct {
	// Source is written to ce_source: the service's name. If it is empty, the relay sets ce_source to its own setting --service.
	Source string
	// Encoder encodes bodies. Default: envelope.JSONCodec. An Encoder with a registry must have resolved its schema ids before it is used
	// here.
	Encoder envelope.Encoder
	// MaxBytes is the size limit of a payload, in bytes. Write refuses a larger payload, since the broker would refuse it. Default
	// 1,000,000: that is below Kafka's own default for a record (message.max.bytes, 1,048,588), with room for headers. At most 8,000,000:
	// the table refuses a row of more than 8 MiB with its headers, since a relay reads whole rows. Above 1 MiB, also raise
	// ProducerBatchMaxBytes of the relay and max.message.bytes of the topic.
	MaxBytes int
	// NotifyEvery is the shortest time between two notifications of this Outbox. Default 5 ms; negative: never notify. A commit that
	// notifies takes a lock that exists once per server, so a busy writer must not notify with each commit.
	NotifyEvery time.Duration
	// NotifyTopics puts the topic into each notification. Then NotifyEvery applies per topic, and participants with local work wake for
	// their own topics only. A commit to more than 8 topics sends one notification without a topic. Default: notifications name no topic,
	// and wake all listeners.
	NotifyTopics bool
	// Trace returns the trace context of ctx, as the values of W3C's headers traceparent and tracestate; "" if ctx belongs to no trace.
	// Write puts these values into the entries' headers, so that the processing of the messages continues that trace. Package telemetry
	// provides Trace for OpenTelemetry. Default: an entry written by a handler continues the trace of the message that is being handled, and
	// other entries have no trace.
	Trace func(ctx context.Context) (traceparent, tracestate string)
}

// An Outbox writes entries. It is safe for concurrent use, also with several pools.
type Outbox struct {
	cfg   Config
	hints *hints
	check Check // nil: no check
}

// MaxBytes returns the size limit of a payload, in bytes.
func (o *Outbox) MaxBytes() int { return o.cfg.MaxBytes }

// A Check checks an entry in the form in which it will be written. ctx is the context of the writer: envelope.CauseOf returns the message
// that is being handled. If the Check returns an error, the entry is refused. A Check may add headers to m. It may add statements to along:
// they run after the insert of the entry, in the same batch.
type Check func(ctx context.Context, m *envelope.Message, along *pgx.Batch) error

// New checks the configuration and sets defaults.
func New(cfg Config) (*Outbox, error) {
	if cfg.Encoder == nil {
		cfg.Encoder = envelope.JSONCodec{}
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 1_000_000
	}
	if cfg.MaxBytes < 0 || cfg.MaxBytes > maxPayload {
		return nil, fmt.Errorf("outbox: max bytes %d: want 1 to %d", cfg.MaxBytes, maxPayload)
	}
	if cfg.NotifyEvery == 0 {
		cfg.NotifyEvery = 5 * time.Millisecond
	}
	return &Outbox{cfg: cfg, hints: &hints{every: cfg.NotifyEvery, named: cfg.NotifyTopics, last: make(map[string]time.Time)}}, nil
}

// Checked returns an Outbox like o that calls check for each entry. The two share one limit of notifications.
func (o *Outbox) Checked(check Check) *Outbox {
	return &Outbox{cfg: o.cfg, hints: o.hints, check: check}
}

const insert = `
INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`

// insertMany inserts rows in the order of the arrays: ORDER BY makes Postgres assign the positions in this order.
const insertMany = `
INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload)
SELECT id, topic, key, key_bytes, type, headers::jsonb, raw_headers, payload
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::bytea[], $8::bytea[])
  WITH ORDINALITY AS e (id, topic, key, key_bytes, type, headers, raw_headers, payload, number)
ORDER BY number`

// insertUTF8 inserts rows as insertMany does. It is used if one of the rows has a key or headers that are not ASCII, and takes these as
// bytes in UTF-8, see outboxrow.Text. A database of another encoding stores them in key_bytes and raw_headers.
const insertUTF8 = `
INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload)
SELECT id, topic,
       CASE WHEN utf8 AND utf8_key IS NOT NULL THEN convert_from(utf8_key, 'UTF8') ELSE key END,
       CASE WHEN utf8 THEN key_bytes ELSE coalesce(key_bytes, utf8_key) END,
       type,
       CASE WHEN utf8 AND utf8_headers IS NOT NULL THEN convert_from(utf8_headers, 'UTF8')::jsonb ELSE headers::jsonb END,
       CASE WHEN utf8 AND utf8_headers IS NOT NULL THEN NULL ELSE raw_headers END,
       payload
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[])
  WITH ORDINALITY AS e (id, topic, key, key_bytes, type, headers, raw_headers, payload, utf8_key, utf8_headers, number),
  (SELECT getdatabaseencoding() = 'UTF8') AS d (utf8)
ORDER BY number`

// Write adds entries to tx, in their order, in one round trip. It refuses an invalid entry (no topic, no type, a body that does not encode,
// a payload that is too large) before anything is sent, and leaves tx usable. After any other error tx is aborted.
//
// tx may have a method QueueBatch(*pgx.Batch) error, as a participant's transaction has. Then Write only queues the entries. They are sent
// with the next statement of tx, which returns any error of Postgres.
//
// In a handler's context the message that is being handled is the cause of the entries. They get its correlation, causation and trace
// context, and the same ids when the handler runs again.
func (o *Outbox) Write(ctx context.Context, tx pgx.Tx, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var rows Rows
	if err := o.Render(ctx, &rows, entries...); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	o.Queue(batch, &rows)
	if q, ok := tx.(interface{ QueueBatch(*pgx.Batch) error }); ok {
		return q.QueueBatch(batch)
	}
	if err := tx.SendBatch(ctx, inUTF8(tx.Conn(), batch)).Close(); err != nil {
		return fmt.Errorf("outbox: write: %w", err)
	}
	return nil
}

// inUTF8 returns batch between a statement that sets client_encoding to UTF8 and one that sets it back. pgx sends strings in UTF-8. With
// another client_encoding Postgres would convert them, and a message could get another key in Kafka.
func inUTF8(conn *pgx.Conn, batch *pgx.Batch) *pgx.Batch {
	if conn == nil || conn.PgConn().ParameterStatus("server_encoding") != "UTF8" {
		return batch
	}
	encoding := conn.PgConn().ParameterStatus("client_encoding")
	if encoding == "UTF8" {
		return batch
	}
	const setEncoding = "SELECT set_config('client_encoding', $1, true)"
	wrapped := &pgx.Batch{}
	wrapped.Queue(setEncoding, "UTF8")
	wrapped.QueuedQueries = append(wrapped.QueuedQueries, batch.QueuedQueries...)
	wrapped.Queue(setEncoding, encoding)
	return wrapped
}

// Rows holds rendered entries that are not queued in a batch yet. The zero value is empty.
type Rows struct {
	ids        [][16]byte
	topics     []string
	keys       []*string
	keyBytes   [][]byte
	types      []string
	headers    [][]byte
	rawHeaders [][]byte
	payloads   [][]byte
	along      pgx.Batch // statements added by the Check

	utf8 []utf8Text // by row; it ends with the last row whose text is not ASCII
}

// A utf8Text holds UTF8Key and UTF8Headers of outboxrow.Text.
type utf8Text struct{ key, headers []byte }

// utf8Of returns the text of a row that is not ASCII, or the zero value if all text of the row is ASCII.
func (r *Rows) utf8Of(row int) (t utf8Text) {
	if row < len(r.utf8) {
		t = r.utf8[row]
	}
	return t
}

// Render adds entries to rows in the form in which Write would write them, for callers that write many entries in one statement. If an
// entry is invalid, Render returns an error and leaves rows unchanged.
func (o *Outbox) Render(ctx context.Context, rows *Rows, entries ...Entry) error {
	traceparent, tracestate := o.trace(ctx)
	r := *rows
	for i, e := range entries {
		c, err := o.columns(ctx, e, traceparent, tracestate, &r.along)
		if err != nil {
			return fmt.Errorf("outbox: entry %d: %w", i, err)
		}
		r.ids, r.topics, r.types = append(r.ids, c.id), append(r.topics, c.topic), append(r.types, c.typ)
		t, err := (&outboxrow.Row{Key: c.key, Headers: c.headers, RawHeaders: c.rawHeaders}).Text()
		if err != nil {
			return fmt.Errorf("outbox: entry %d: %w", i, err)
		}
		r.keys, r.keyBytes = append(r.keys, t.Key), append(r.keyBytes, c.keyBytes)
		r.headers, r.rawHeaders = append(r.headers, t.Headers), append(r.rawHeaders, t.RawHeaders)
		r.payloads = append(r.payloads, c.payload)
		if t.UTF8Key != nil || t.UTF8Headers != nil {
			before := make([]utf8Text, len(r.ids)-1-len(r.utf8))
			r.utf8 = append(append(r.utf8, before...), utf8Text{t.UTF8Key, t.UTF8Headers})
		}
	}
	*rows = r
	return nil
}

// Queue adds to batch the statement that inserts rows, the statements of the Check, and a notification if one is due. It empties rows.
func (o *Outbox) Queue(batch *pgx.Batch, rows *Rows) {
	r := *rows
	*rows = Rows{}
	switch {
	case len(r.ids) == 0:
		return
	case len(r.utf8) > 0:
		keys, headers := make([][]byte, len(r.ids)), make([][]byte, len(r.ids))
		for i, t := range r.utf8 {
			keys[i], headers[i] = t.key, t.headers
		}
		batch.Queue(insertUTF8, r.ids, r.topics, r.keys, r.keyBytes, r.types, r.headers, r.rawHeaders, r.payloads, keys, headers)
	case len(r.ids) == 1:
		batch.Queue(insert, r.ids[0], r.topics[0], r.keys[0], r.keyBytes[0], r.types[0], r.headers[0], r.rawHeaders[0], r.payloads[0])
	default:
		batch.Queue(insertMany, r.ids, r.topics, r.keys, r.keyBytes, r.types, r.headers, r.rawHeaders, r.payloads)
	}
	batch.QueuedQueries = append(batch.QueuedQueries, r.along.QueuedQueries...)
	if named := o.hints.due(time.Now(), r.topics); len(named) > 0 {
		batch.Queue(notify, named)
	}
}

// Row returns the row that Write would insert for e in the same context, for callers that store the row and insert it later. The row has no
// position and no time. It has the headers that a Check adds, but the statements that a Check adds are lost.
func (o *Outbox) Row(ctx context.Context, e Entry) (outboxrow.Row, error) {
	traceparent, tracestate := o.trace(ctx)
	c, err := o.columns(ctx, e, traceparent, tracestate, &pgx.Batch{})
	if err != nil {
		return outboxrow.Row{}, fmt.Errorf("outbox: %w", err)
	}
	return outboxrow.Row{
		ID: c.id, Topic: c.topic, Key: c.key, KeyBytes: c.keyBytes, Type: c.typ,
		Headers: c.headers, RawHeaders: c.rawHeaders, Payload: c.payload,
	}, nil
}

func (o *Outbox) trace(ctx context.Context) (traceparent, tracestate string) {
	if o.cfg.Trace == nil {
		return "", ""
	}
	return o.cfg.Trace(ctx)
}
