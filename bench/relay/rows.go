package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A load is the rows of a run. Row i is the same in every run: its number is in its id, and its key, topic and payload are
// derived from it.
type load struct {
	rows   int
	keys   int // taken in turn; 1 is one hot key
	topics int
}

func (l load) String() string {
	topics := "1 topic"
	if l.topics > 1 {
		topics = fmt.Sprintf("%d topics", l.topics)
	}
	if l.keys == 1 {
		return topics + ", one key"
	}
	return fmt.Sprintf("%s, %d keys", topics, l.keys)
}

func (l load) key(i int) string { return "order-" + strconv.Itoa(i%l.keys) }

// topic is derived from the key: order is kept for the rows of a key within a topic.
func (l load) topic(i int) int { return i % l.keys % l.topics }

// rowID returns a UUID of version 8 that ends in i.
func rowID(i int) uuid.UUID {
	id := uuid.UUID{0: 'b', 1: 'e', 2: 'n', 3: 'c', 6: 0x80, 8: 0x80}
	binary.BigEndian.PutUint32(id[12:], uint32(i))
	return id
}

// rowOf returns the row whose id is in a header, as text or as JSON.
func rowOf(header []byte) (i int, err error) {
	id, err := uuid.Parse(strings.Trim(string(header), `"`))
	if err != nil {
		return 0, fmt.Errorf("id %q: %w", header, err)
	}
	i = int(binary.BigEndian.Uint32(id[12:]))
	if rowID(i) != id {
		return 0, fmt.Errorf("id %s is none of this benchmark's", id)
	}
	return i, nil
}

// payload returns JSON of about 600 bytes, like an order with three items.
func payload(i int) []byte {
	b := make([]byte, 0, 640)
	random := uint64(i)
	word := func() { // 32 digits that compress badly, like ids
		var raw [16]byte
		for half := range 2 {
			random += 0x9e3779b97f4a7c15 // splitmix64
			z := (random ^ random>>30) * 0xbf58476d1ce4e5b9
			z = (z ^ z>>27) * 0x94d049bb133111eb
			binary.BigEndian.PutUint64(raw[8*half:], z^z>>31)
		}
		b = hex.AppendEncode(b, raw[:])
	}
	b = append(b, `{"orderId": "`...)
	word()
	b = fmt.Appendf(b, `", "customer": "cust-%d", "status": "PLACED", "amount": %d.%02d, "currency": "EUR", "items": [`, i%100_000, i%1000, i%100)
	for item := range 3 {
		b = fmt.Appendf(b, `{"sku": "SKU-%d", "qty": %d, "ref": "`, (i+item)%9973, i%9+1)
		word()
		b = append(b, `"}, `...)
	}
	b = append(b[:len(b)-2], `], "address": {"street": "`...)
	word()
	b = append(b, `", "city": "`...)
	word()
	b = fmt.Appendf(b, `", "zip": "%05d"}, "note": "`, i%100_000)
	word()
	word()
	return append(b, `"}`...)
}

// A table is a table for the rows.
type table struct {
	name    pgx.Identifier
	columns []string // for id, topic, key, type and payload
	create  string
}

var (
	troupeTable = table{
		name: pgx.Identifier{"troupe", "outbox"}, columns: []string{"id", "topic", "key", "type", "payload"},
	}
	// debeziumTable has the shape in the documentation of Debezium's EventRouter.
	debeziumTable = table{
		name: pgx.Identifier{"outbox"}, columns: []string{"id", "aggregatetype", "aggregateid", "type", "payload"},
		create: `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
			type varchar(255) NOT NULL, payload jsonb NOT NULL)`,
	}
)

const (
	rowType     = "OrderPlaced"
	transaction = 1000 // rows of a transaction, in a backlog
)

// fill writes the backlog, in order, in transactions of 1,000 rows, then vacuums and writes a checkpoint, so that neither runs
// during the measured run.
func (b *bed) fill(ctx context.Context, into table, l load) error {
	conn, err := pgx.Connect(ctx, b.socketURL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return err
	}
	for from := 0; from < l.rows; from += transaction {
		n := min(transaction, l.rows-from)
		_, err := conn.CopyFrom(ctx, into.name, into.columns, pgx.CopyFromSlice(n, func(i int) ([]any, error) {
			i += from
			return []any{rowID(i), b.topics[l.topic(i)], l.key(i), rowType, payload(i)}, nil
		}))
		if err != nil {
			return fmt.Errorf("fill %s: %w", into.name.Sanitize(), err)
		}
	}
	for _, sql := range []string{"VACUUM (ANALYZE) " + into.name.Sanitize(), "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
