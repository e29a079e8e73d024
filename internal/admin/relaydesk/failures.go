package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/mapping"
)

// A Status says why a failed row is not published.
type Status string

// The statuses. A row that is published, or was never tried, has none.
const (
	Parked   Status = "parked"   // until an operator acts; later rows of its key wait
	Retrying Status = "retrying" // until its next try
	Waiting  Status = "waiting"  // behind such a row of its key
)

// A Row describes one failed row.
type Row struct {
	Position    int64      `json:"position"`
	ID          uuid.UUID  `json:"id"`
	Topic       string     `json:"topic"`
	Key         string     `json:"key,omitempty"` // 0x… if it is not text
	Type        string     `json:"type,omitempty"`
	Status      Status     `json:"status"`
	Attempts    int        `json:"attempts"`
	MaxAttempts int        `json:"max_attempts"`
	NextTry     *time.Time `json:"next_try,omitempty"` // of a retrying row
	LastError   string     `json:"last_error"`
	FirstFailed time.Time  `json:"first_failed_at"`
	Created     *time.Time `json:"created_at,omitempty"` // null: the row is gone from the outbox, or its table has no such column

	Headers string  `json:"headers,omitempty"` // this and the fields below are set by Show only
	Payload *string `json:"payload,omitempty"` // as \x… if it is not text

	EventID string             `json:"event_id,omitempty"` // of a table with a mapping, as in its column
	Columns map[string]*string `json:"columns,omitempty"`  // of a row of such a table that cannot be shown as a message
}

func (r *Row) fields() []any {
	return []any{
		&r.Position, (*[16]byte)(&r.ID), &r.Topic, &r.Key, &r.Type, &r.Status, &r.Attempts, &r.MaxAttempts, &r.NextTry, &r.LastError,
		&r.FirstFailed, &r.Created,
	}
}

// mappedFields scans the key into a variable of the caller, since it is bytes in that table.
func (r *Row) mappedFields(key *[]byte) []any {
	return []any{
		&r.Position, (*[16]byte)(&r.ID), &r.EventID, &r.Topic, key, &r.Status, &r.Attempts, &r.MaxAttempts, &r.NextTry, &r.LastError, &r.FirstFailed,
	}
}

// A Filter selects rows. The zero Filter selects all of them.
type Filter struct {
	Status Status // "": any
	Topic  string // "": any
}

// A Page selects a part of a list: at most Rows rows, 1 to MostRows, with positions above After. A page of large keys has fewer.
type Page struct {
	After int64
	Rows  int
}

// MostRows is the maximum number of rows of a page.
const MostRows = 1000

// List returns failed rows, lowest position first, and the value of After for the next page, 0 if this page is the last.
func (d Desk) List(ctx context.Context, f Filter, p Page) (rows []Row, next int64, err error) {
	query, scan := listFailures, func(one pgx.CollectableRow) (r Row, err error) { return r, one.Scan(r.fields()...) }
	if d.mapped() {
		query, scan = listMapped, scanMapped
	}
	found, err := d.DB.Query(ctx, query, pgx.NamedArgs{
		"table": d.Table.Name, "status": string(f.Status), "topic": f.Topic, "after": p.After, "rows": p.Rows + 1,
	})
	if err != nil {
		return nil, 0, explain(err)
	}
	rows, more, err := admin.Collect(found, p.Rows, scan)
	if more {
		next = rows[len(rows)-1].Position
	}
	return rows, next, explain(err)
}

// Parked returns the number of parked rows of a topic.
func (d Desk) Parked(ctx context.Context, topic string) (int, error) {
	n, err := all(ctx, d.DB, countParked, pgx.NamedArgs{"table": d.Table.Name, "topic": topic}, pgx.RowTo[int])
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

func scanMapped(one pgx.CollectableRow) (r Row, err error) {
	var key []byte
	err = one.Scan(r.mappedFields(&key)...)
	r.Key = keyText(key)
	return r, err
}

// Show returns one failed row with its headers and payload, or its columns. The error wraps ErrNoFailure if the row is
// no failed row.
func (d Desk) Show(ctx context.Context, of RowID) (Row, error) {
	query, scan := showFailure, func(one pgx.CollectableRow) (r Row, err error) {
		var payload []byte
		err = one.Scan(append(r.fields(), &r.Headers, &payload)...)
		r.Payload = shown(payload)
		return r, err
	}
	if d.mapped() {
		query, scan = showMapped, d.scanWhole
	}
	rows, err := all(ctx, d.DB, query, pgx.NamedArgs{"table": d.Table.Name, "id": [16]byte(of.ID), "topic": of.Topic}, scan)
	switch {
	case err != nil:
		return Row{}, err
	case len(rows) == 0:
		return Row{}, fmt.Errorf("%s is %w: perhaps it was published or discarded meanwhile", of.ID, ErrNoFailure)
	}
	return rows[0], nil
}

// scanWhole renders the message that the mapping makes of the row now, or else the row's columns.
func (d Desk) scanWhole(one pgx.CollectableRow) (r Row, err error) {
	var key, kept []byte
	if err := one.Scan(append(r.mappedFields(&key), &kept)...); err != nil {
		return r, err
	}
	r.Key = keyText(key)
	var row mapping.Row
	if err := json.Unmarshal(kept, &row); err != nil {
		return r, err
	}
	r.fill(row, d.Table.Mapping)
	return r, nil
}

func (r *Row) fill(row mapping.Row, m *mapping.Mapping) {
	columns := func() {
		r.Columns = make(map[string]*string, len(row.Columns))
		for n, c := range row.Columns {
			if r.Columns[c.Name] = shown(row.Values[n].Data); row.Values[n].Missing > 0 {
				text := fmt.Sprintf("(%d bytes, not kept)", row.Values[n].Missing)
				r.Columns[c.Name] = &text
			}
		}
	}
	if m == nil {
		columns()
		return
	}
	message, err := row.Message(m)
	if err != nil {
		columns()
		return
	}
	headers := make(map[string]string)
	for _, h := range message.Headers() {
		headers[h.Key] = string(h.Value)
	}
	text, _ := json.Marshal(headers) // a map of strings cannot fail
	r.Headers, r.Type, r.Payload = string(text), message.Type, shown(message.Payload)
	if !message.Timestamp.IsZero() {
		r.Created = &message.Timestamp
	}
}

// keyText renders a key as list_failures.sql does.
func keyText(key []byte) string {
	if text := shown(key); text != nil && !strings.HasPrefix(*text, `\x`) {
		return *text
	}
	if key == nil {
		return ""
	}
	return fmt.Sprintf("0x%x", key)
}

// shown returns payload as readable text: as it is if it is text, else as \x and hex digits. It returns nil for nil.
func shown(payload []byte) *string {
	if payload == nil {
		return nil
	}
	text := string(payload)
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		text = fmt.Sprintf(`\x%x`, payload)
	}
	return &text
}
