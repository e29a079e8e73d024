// Package outbox is the table in which a service leaves its outgoing messages, written in the transaction that changes
// the service's own rows: both happen or neither.
//
//	service ──┬─ its own rows ─┐
//	          └─ troupe.outbox ┴─ one commit ──► relay ──► Kafka
//
// What is promised: an entry whose transaction committed is published at least once, under one id; one whose
// transaction rolled back never is. Entries with the same key are published in the order of their positions, as far as
// their writers are serialised by their own data (a row lock or a version check taken before Write).
//
// What is not: order between keys, and order between two transactions that write the same key without anything that
// makes one wait for the other.
//
//	failure                              effect
//	crash before the commit              neither rows nor messages
//	crash after the commit               the relay publishes when it runs
//	no relay runs                        entries wait; the table grows; nothing is lost
//	Write fails                          the transaction is aborted by Postgres, or Write refused before it sent
//	partitions run out                   inserts fail; Partitions makes them ahead, Stats.Headroom tells how many are left
//
// Rows leave the table by the relay that published them: deleted once acknowledged under poll, with their whole
// partition under WAL. Type Retention says when, and what becomes of it at each failure.
//
// Any language takes part with a plain statement; everything but topic, type and payload has a default:
//
//	INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('order.payment.commands', 'o-1', 'ChargePayment', '{…}')
//
// A service needs the rights that `outbox-relay grants writer` prints: to insert by column, so that it cannot forge a position or a
// transaction id.
//
// This package knows no Kafka.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
)

// Channel is what Write notifies on, and relays and local participants listen to. The payload is empty, or with
// Config.NotifyTopics a topic that something was written to. Who writes without this package may leave it empty, or notify
// nobody: everybody looks from time to time, too.
const Channel = "troupe_outbox"

// ErrTooLarge is wrapped by the error about a payload above Config.MaxBytes.
var ErrTooLarge = errors.New("larger than the outbox takes")

// Config of an Outbox. The zero value works: JSON, any source, notifications.
type Config struct {
	// Source is ce_source, the service's name. Left empty the relay's --service fills it.
	Source string
	// Encoder renders bodies. Default: envelope.JSONCodec. It has resolved its schema ids before it comes here.
	Encoder envelope.Encoder
	// MaxBytes is the largest payload; above it Write refuses, since the broker would. Default 1,000,000, which is
	// below Kafka's own default for a record (message.max.bytes, 1,048,588) with room for headers.
	MaxBytes int
	// NotifyEvery is the least time between two notifications of this process. Default 5 ms; negative: never notify.
	// A commit that notifies takes a lock that is one for the whole server, so a busy writer must not do it each time.
	NotifyEvery time.Duration
	// NotifyTopics has each notification name its topic, and NotifyEvery count for each of them: participants with local
	// work wake for their own topics only. Default: a notification is of anything, and wakes all.
	NotifyTopics bool
	// Trace says where in a trace ctx is, as the texts of W3C's headers traceparent and tracestate; "" where it is in
	// none. What Write is called with goes along in the entries' headers, so that what becomes of them continues that
	// trace. Default: an entry written by a handler continues the trace of the message it handles, others have none.
	// Package telemetry has it for OpenTelemetry.
	Trace func(ctx context.Context) (traceparent, tracestate string)
}

// Outbox writes entries. It may be used concurrently, also from many pools.
type Outbox struct {
	cfg   Config
	hints *hints
	check Check // nil: anything goes
}

// A Check is asked about an entry as it is to be written, in the writer's context: envelope.CauseOf knows what it follows
// from. Its error refuses the entry. It may add headers to m, and to along statements that go with the entry, behind it.
type Check func(ctx context.Context, m *envelope.Message, along *pgx.Batch) error

// New checks the configuration and fills its gaps.
func New(cfg Config) (*Outbox, error) {
	if cfg.Encoder == nil {
		cfg.Encoder = envelope.JSONCodec{}
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 1_000_000
	}
	if cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("outbox: max bytes %d is negative", cfg.MaxBytes)
	}
	if cfg.NotifyEvery == 0 {
		cfg.NotifyEvery = 5 * time.Millisecond
	}
	return &Outbox{cfg: cfg, hints: &hints{every: cfg.NotifyEvery, named: cfg.NotifyTopics, last: make(map[string]time.Time)}}, nil
}

// Checked is an Outbox like o, and with o's notifications, that asks check first.
func (o *Outbox) Checked(check Check) *Outbox {
	return &Outbox{cfg: o.cfg, hints: o.hints, check: check}
}

const insert = `
INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`

// insertMany keeps their order: positions are given out behind the sort.
const insertMany = `
INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload)
SELECT id, topic, key, key_bytes, type, headers::jsonb, raw_headers, payload
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::bytea[], $8::bytea[])
  WITH ORDINALITY AS e (id, topic, key, key_bytes, type, headers, raw_headers, payload, number)
ORDER BY number`

// Write adds entries to tx, in their order, in one round trip. An entry that cannot be (no topic, no type, a body that
// does not encode, a payload that is too large) is refused before anything is sent, and then tx is as it was. After any
// other error tx is aborted.
//
// Where tx can queue a batch until its next statement (it has QueueBatch(*pgx.Batch) error, as a participant's has), the entries
// travel with that one: then an error of Postgres's comes from there.
//
// In a handler's context the entries follow from the message being handled: correlation, causation and trace context
// are its own, and the ids repeat when the handler is run again.
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
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("outbox: write: %w", err)
	}
	return nil
}

// Rows are entries on their way into a transaction. The zero value has none.
type Rows struct {
	ids        [][16]byte
	topics     []string
	keys       []*string
	keyBytes   [][]byte
	types      []string
	headers    [][]byte
	rawHeaders [][]byte
	payloads   [][]byte
	along      pgx.Batch // of the Check
}

// Render adds entries to rows as Write would write them, for who writes many at once. An entry that cannot be is refused,
// and then rows are as they were.
func (o *Outbox) Render(ctx context.Context, rows *Rows, entries ...Entry) error {
	traceparent, tracestate := o.trace(ctx)
	r := *rows
	for i, e := range entries {
		c, err := o.columns(ctx, e, traceparent, tracestate, &r.along)
		if err != nil {
			return fmt.Errorf("outbox: entry %d: %w", i, err)
		}
		r.ids, r.topics, r.types = append(r.ids, c.id), append(r.topics, c.topic), append(r.types, c.typ)
		r.keys, r.keyBytes = append(r.keys, c.key), append(r.keyBytes, c.keyBytes)
		r.headers, r.rawHeaders = append(r.headers, c.headers), append(r.rawHeaders, c.rawHeaders)
		r.payloads = append(r.payloads, c.payload)
	}
	*rows = r
	return nil
}

// Queue adds the statement that writes rows to batch, with a notification when one is due. Then rows has none.
func (o *Outbox) Queue(batch *pgx.Batch, rows *Rows) {
	r := *rows
	*rows = Rows{}
	switch len(r.ids) {
	case 0:
		return
	case 1:
		batch.Queue(insert, r.ids[0], r.topics[0], r.keys[0], r.keyBytes[0], r.types[0], r.headers[0], r.rawHeaders[0], r.payloads[0])
	default:
		batch.Queue(insertMany, r.ids, r.topics, r.keys, r.keyBytes, r.types, r.headers, r.rawHeaders, r.payloads)
	}
	batch.QueuedQueries = append(batch.QueuedQueries, r.along.QueuedQueries...)
	if named := o.hints.due(time.Now(), r.topics); len(named) > 0 {
		batch.Queue(notify, named)
	}
}

// Row is e as Write would insert it in the same context, for whoever keeps it until its time comes. It has no position
// and no time, and what a Check adds beside its headers is left out.
func (o *Outbox) Row(ctx context.Context, e Entry) (Row, error) {
	traceparent, tracestate := o.trace(ctx)
	c, err := o.columns(ctx, e, traceparent, tracestate, &pgx.Batch{})
	if err != nil {
		return Row{}, fmt.Errorf("outbox: %w", err)
	}
	return Row{
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
