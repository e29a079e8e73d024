package mapping

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

const (
	envelopePayload = "payload" // member of an envelope
	octetStream     = "application/octet-stream"
	schemaVersion   = "ce_schemaversion"
	maxAttribute    = 1024 // bytes of an id, a type and a trace context, as in package envelope
)

// A Table is a Mapping bound to the columns of a row. Bind a new one whenever the columns change; that takes some
// microseconds. It is not safe for concurrent use.
type Table struct {
	m       *Mapping
	readers []reader // by column; unused for columns that the mapping does not read

	id, key, route, payload, typ, at, version, span, position, xid int // indexes of columns; -1: none
	placed                                                         []placedAt
	asText                                                         bool // see AsText

	topics map[string]string // topics by routing value
}

// maxTopics limits the topics that a Table caches. It caches them since evaluating the expression takes longer than the rest
// of a row.
const maxTopics = 1000

type placedAt struct {
	placed
	place int
	name  []byte // the alias as a JSON member, with the comma before it and the colon after it
}

// Bind finds the mapping's columns among the columns of a row, which may include others, in any order. Its error names all
// columns that are missing or of the wrong type.
func (m *Mapping) Bind(columns []Column) (*Table, error) {
	t := &Table{m: m, readers: make([]reader, len(columns)), topics: make(map[string]string)}
	places := make(map[string]int, len(columns))
	types := pgtype.NewMap()
	for i, c := range columns {
		places[c.Name] = i
		t.readers[i] = reader{Column: c, kind: kindOf[c.Type], types: types}
	}
	var failed []error
	for _, w := range m.wanted() {
		i, there := places[w.column]
		switch {
		case !there && !w.optional:
			failed = append(failed, fmt.Errorf("%s: the table has no column %q, or it is generated and the log does not have it", w.option, w.column))
		case there && len(w.kinds) > 0 && !slices.Contains(w.kinds, t.readers[i].kind):
			failed = append(failed, fmt.Errorf("%s: column %q is of type OID %d, want %s", w.option, w.column, columns[i].Type, w.kinds[0]))
		case there:
			t.asText = t.asText || t.readers[i].kind == kindOther || t.readers[i].kind == kindFloat
		}
	}
	if len(failed) > 0 {
		return nil, fmt.Errorf("mapping: %w", errors.Join(failed...))
	}
	t.find(places)
	return t, nil
}

// AsText reports whether the server must send the rows as text: the mapping reads a column of which only the server has Postgres's text.
// pgtype reads the binary format of most types, but writes some values in another form, and loses the dimensions of an array.
func (t *Table) AsText() bool { return t.asText }

// TextSettings makes the settings of a session in which the server sends rows as text. With them the text does not depend on the settings of
// the role or the database, and dates and times are in the form that a Table reads. Only lc_monetary stays as it is: it is the currency of
// values of type money. TextSettings is one statement, since walsenders of Postgres 14.0 and 14.1 take no more in one message.
const TextSettings = `
SELECT pg_catalog.set_config(s.name, s.value, false)
FROM (VALUES
  ('datestyle', 'ISO'),
  ('intervalstyle', 'postgres'),
  ('timezone', 'UTC'),
  ('extra_float_digits', '1'),
  ('bytea_output', 'hex')
) AS s (name, value)`

func (t *Table) find(places map[string]int) {
	place := func(column string) int {
		if i, there := places[column]; there && column != "" {
			return i
		}
		return -1
	}
	c := t.m.cfg
	t.id, t.key, t.route, t.payload = place(c.ID), place(c.Key), place(c.RouteBy), place(c.Payload)
	t.at, t.version, t.span = place(c.Timestamp), place(c.SchemaVersion), place(c.SpanContext)
	t.position, t.xid = place(c.Position), place(c.XID)
	t.typ = -1
	if c.Headers == CloudEvents {
		t.typ = place(c.Type)
	}
	for _, p := range t.m.placed {
		if i := place(p.column); i >= 0 {
			name := append(quote([]byte{','}, []byte(p.alias)), ':')
			t.placed = append(t.placed, placedAt{p, i, name})
		}
	}
}

// Message makes a message of one row, whose values are in the order of Bind's columns. Key, payload and headers may share the
// values' memory: copy them if they must outlive it.
//
// An error wraps ErrRow. The message then contains the known parts of position, xid, id, key and topic, so that the row can
// be parked and its key can wait.
func (t *Table) Message(row []Value) (Message, error) {
	m := Message{Partition: ByKey}
	if len(row) != len(t.readers) {
		return m, fmt.Errorf("mapping: %w: it has %d columns, the table was bound with %d", ErrRow, len(row), len(t.readers))
	}
	b := build{t: t, row: row, m: &m}
	b.identify()
	if b.err == nil {
		b.body()
		b.head()
	}
	if b.err != nil {
		return m, fmt.Errorf("mapping: %w: %w", ErrRow, b.err)
	}
	return m, nil
}

func (t *Table) topic(by string) string {
	topic, known := t.topics[by]
	if !known {
		if len(t.topics) == maxTopics {
			clear(t.topics)
		}
		topic = t.m.route.topic(by)
		t.topics[by] = topic
	}
	return topic
}
