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

	"github.com/troupe-go/troupe/relay/mapping"
)

// A Status of a row in trouble.
type Status string

// The statuses. What is published or was never tried has none.
const (
	Parked   Status = "parked"   // until a person acts; its key waits behind it
	Retrying Status = "retrying" // until its next try
	Waiting  Status = "waiting"  // behind such a row of its key
)

// A Row is in trouble.
type Row struct {
	Position    int64      `json:"position"`
	ID          uuid.UUID  `json:"id"`
	Topic       string     `json:"topic"`
	Key         string     `json:"key,omitempty"` // 0x… where it is no text
	Type        string     `json:"type,omitempty"`
	Status      Status     `json:"status"`
	Attempts    int        `json:"attempts"`
	MaxAttempts int        `json:"max_attempts"`
	NextTry     *time.Time `json:"next_try,omitempty"` // of a retrying one
	LastError   string     `json:"last_error"`
	FirstFailed time.Time  `json:"first_failed_at"`
	Created     *time.Time `json:"created_at,omitempty"` // null: the row is gone from the outbox, or its table does not tell

	Headers string  `json:"headers,omitempty"` // from here on only of Show
	Payload *string `json:"payload,omitempty"` // as \x… where it is no text

	EventID string             `json:"event_id,omitempty"` // of a table with a mapping, as it stands there
	Columns map[string]*string `json:"columns,omitempty"`  // of such a row that is not shown as a message
}

func (r *Row) fields() []any {
	return []any{
		&r.Position, (*[16]byte)(&r.ID), &r.Topic, &r.Key, &r.Type, &r.Status, &r.Attempts, &r.MaxAttempts, &r.NextTry, &r.LastError,
		&r.FirstFailed, &r.Created,
	}
}

// mappedFields leave the key, which is bytes there.
func (r *Row) mappedFields(key *[]byte) []any {
	return []any{
		&r.Position, (*[16]byte)(&r.ID), &r.EventID, &r.Topic, key, &r.Status, &r.Attempts, &r.MaxAttempts, &r.NextTry, &r.LastError, &r.FirstFailed,
	}
}

// A Filter says which rows are listed. The zero Filter is all of them.
type Filter struct {
	Status Status // "": any
	Topic  string // "": any
}

// A Page is how much of a list: Rows at most, 1 to MostRows, above a position.
type Page struct {
	After int64
	Rows  int
}

// MostRows of a page.
const MostRows = 1000

// List gives rows in trouble, lowest position first, and what After must be for those behind, or 0.
func (d Desk) List(ctx context.Context, f Filter, p Page) (rows []Row, next int64, err error) {
	query, scan := listTrouble, func(one pgx.CollectableRow) (r Row, err error) { return r, one.Scan(r.fields()...) }
	if d.mapped() {
		query, scan = listMapped, scanMapped
	}
	rows, err = all(ctx, d.DB, query, pgx.NamedArgs{
		"table": d.Table.Name, "status": string(f.Status), "topic": f.Topic, "after": p.After, "rows": p.Rows + 1,
	}, scan)
	if err == nil && len(rows) > p.Rows {
		rows = rows[:p.Rows]
		next = rows[p.Rows-1].Position
	}
	return rows, next, err
}

func scanMapped(one pgx.CollectableRow) (r Row, err error) {
	var key []byte
	err = one.Scan(r.mappedFields(&key)...)
	r.Key = keyText(key)
	return r, err
}

// Show gives one row in trouble with what it holds. The error is ErrNoTrouble when it has none.
func (d Desk) Show(ctx context.Context, id uuid.UUID) (Row, error) {
	query, scan := showTrouble, func(one pgx.CollectableRow) (r Row, err error) {
		var payload []byte
		err = one.Scan(append(r.fields(), &r.Headers, &payload)...)
		r.Payload = shown(payload)
		return r, err
	}
	if d.mapped() {
		query, scan = showMapped, d.scanWhole
	}
	rows, err := all(ctx, d.DB, query, pgx.NamedArgs{"table": d.Table.Name, "id": [16]byte(id)}, scan)
	switch {
	case err != nil:
		return Row{}, err
	case len(rows) == 0:
		return Row{}, fmt.Errorf("%s is %w: perhaps it was published or discarded meanwhile", id, ErrNoTrouble)
	}
	return rows[0], nil
}

// scanWhole shows the message that the mapping makes of the row now, else the row's columns.
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
			r.Columns[c.Name] = shown(row.Values[n].Data)
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
	text, _ := json.Marshal(headers) // of texts
	r.Headers, r.Type, r.Payload = string(text), message.Type, shown(message.Payload)
	if !message.Timestamp.IsZero() {
		r.Created = &message.Timestamp
	}
}

// keyText is as list_trouble.sql has it.
func keyText(key []byte) string {
	if text := shown(key); text != nil && !strings.HasPrefix(*text, `\x`) {
		return *text
	}
	if key == nil {
		return ""
	}
	return fmt.Sprintf("0x%x", key)
}

// shown is what a person can read; nil of nothing.
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
