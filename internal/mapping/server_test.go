package mapping_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const oddTable = `
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE DOMAIN label AS varchar(40);
CREATE DOMAIN stamp AS timestamp(3);
CREATE TABLE odd (
    id uuid, aggregatetype label, aggregateid bytea, type mood, payload jsonb, unused point,
    a int2, b int4, c int8, d bool, e numeric(10,2), f float8, g date, h time, i timestamptz, j timestamp, k stamp,
    l json, m interval, n text[], o bytea, p inet, q char(4), r float8, s timestamptz, t timestamptz(2), u numeric, v time(3), w varchar
);
INSERT INTO odd VALUES (
    '406c07f3-26f0-4eea-a50c-109940064b8f', 'order', '\xff00', 'glad', '{"a": "é", "b": [1, 2.50]}', '(1,2)',
    -32768, 2147483647, -9223372036854775808, true, 12345678.90, -0.1, '1969-12-31', '12:13:14.000015',
    '2019-03-24 20:52:59.1234+02', '2019-03-24 20:52:59.123456', '2019-03-24 20:52:59.1239', '{"x":  1}', '1 day 02:03:04', '{a,"b c"}',
    '\x0102', '10.0.0.1', 'ab', 'NaN', 'infinity', '2019-03-24 20:52:59.999+00', 'NaN', '00:00:01.5', E'q"\\\n\x07é'
)`

// oddHeaders places the row's columns in headers, each under its own name, and in an envelope.
const (
	oddHeaders = "a:header,b:header,c:header,d:header,e:header,f:header,g:header,h:header,i:header,j:header,k:header,l:header,m:header," +
		"n:header,o:header,p:header,q:header,r:header,s:header,t:header,u:header,v:header,w:header"
	oddEnvelope = "a:envelope,d:envelope,e:envelope,f:envelope,i:envelope,j:envelope,l:envelope,o:envelope,r:envelope,s:envelope,w:envelope"
)

var oddWant = []string{
	"id=406c07f3-26f0-4eea-a50c-109940064b8f", "a=-32768", "b=2147483647", "c=-9223372036854775808", "d=true", "e=12345678.90", "f=-0.1",
	"g=-1", "h=43994000015", "i=2019-03-24T18:52:59.123400Z", "j=1553460779123456", "k=1553460779124", `l={"x":  1}`, "m=1 day 02:03:04",
	`n={a,"b c"}`, "o=AQI=", "p=10.0.0.1", "q=ab  ", "r=NaN", "s=infinity", "t=2019-03-24T20:53:00.00Z", "u=NaN", "v=1500", "w=q\"\\\n\x07é",
}

const oddJSON = `{"payload":"{\"a\": \"é\", \"b\": [1, 2.50]}","a":-32768,"d":true,"e":"12345678.90","f":-0.1,` +
	`"i":"2019-03-24T18:52:59.123400Z","j":1553460779123456,"l":"{\"x\":  1}","o":"AQI=","r":"NaN","s":"infinity","w":"q\"\\\n\u0007é"}`

func checkOdd(t *testing.T, columns []mapping.Column, row []mapping.Value) {
	t.Helper()
	for placements, check := range map[string]func(mapping.Message){
		oddHeaders:  func(m mapping.Message) { require.Equal(t, oddWant, headers(m)) },
		oddEnvelope: func(m mapping.Message) { require.Equal(t, oddJSON, string(m.Payload)) },
	} {
		m, err := mapping.New(mapping.Config{Headers: mapping.EventRouter, Additional: placements})
		require.NoError(t, err)
		table, err := m.Bind(columns)
		require.NoError(t, err)
		got, err := table.Message(row)
		require.NoError(t, err)
		require.Equal(t, "outbox.event.order", got.Topic)
		require.Equal(t, "\xff\x00", string(got.Key))
		check(got)
	}
}

// catalog returns a table's columns, read by mapping.ColumnsSQL.
func catalog(t *testing.T, pool *pgxpool.Pool, table string) []mapping.Column {
	rows, err := pool.Query(t.Context(), mapping.ColumnsSQL, table)
	require.NoError(t, err)
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[mapping.Column])
	require.NoError(t, err)
	return columns
}

// TestRowsOfAQuery reads a table as the sweep of a mapped table does: its columns from the catalog, its values as the server
// sends them, in either format.
func TestRowsOfAQuery(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), oddTable)
	require.NoError(t, err)
	columns := catalog(t, pool, "odd")
	list := ""
	for _, c := range columns {
		list += ", " + pgx.Identifier{c.Name}.Sanitize()
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		rows, err := pool.Query(t.Context(), "SELECT "+list[2:]+" FROM odd", mode)
		require.NoError(t, err)
		defer rows.Close()
		require.True(t, rows.Next())
		row := make([]mapping.Value, len(columns))
		for i, raw := range rows.RawValues() {
			row[i] = mapping.Value{Data: raw, Binary: rows.FieldDescriptions()[i].Format == pgx.BinaryFormatCode}
		}
		checkOdd(t, columns, row)
		rows.Close()
		require.NoError(t, rows.Err())
	}
}

// TestRowsOfTheWAL reads the same row as pgoutput decodes it, in either format.
func TestRowsOfTheWAL(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	ctx := t.Context()
	var slot string
	require.NoError(t, pool.QueryRow(ctx, "SELECT 'mapping_' || substr(md5(current_database()), 1, 12)").Scan(&slot))
	_, err := pool.Exec(ctx, "CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'insert')")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "SELECT pg_drop_replication_slot($1)", slot)
		require.NoError(t, err)
	})
	_, err = pool.Exec(ctx, oddTable)
	require.NoError(t, err)
	types := make(map[string]mapping.Column)
	for _, c := range catalog(t, pool, "odd") {
		types[c.Name] = c
	}
	for _, format := range []string{"true", "false"} {
		rows, err := pool.Query(ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
			'proto_version', '1', 'publication_names', 'p', 'binary', $2)`, slot, format)
		require.NoError(t, err)
		messages, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		require.NoError(t, err)
		var columns []mapping.Column
		inserts := 0
		for _, data := range messages {
			switch data[0] {
			case 'R':
				columns = relation(data, types)
			case 'I':
				inserts++
				checkOdd(t, columns, tuple(data, format == "true"))
			}
		}
		require.Equal(t, 1, inserts)
	}
}

// relation returns the columns of a Relation message, with their types from the catalog.
func relation(data []byte, types map[string]mapping.Column) (columns []mapping.Column) {
	w := wire{data[5:]}
	w.text()
	w.text()
	w.skip(1)
	for range w.uint16() {
		w.skip(1)
		columns = append(columns, types[w.text()])
		w.skip(8)
	}
	return columns
}

func tuple(data []byte, binaryWanted bool) (row []mapping.Value) {
	w := wire{data[6:]}
	for range w.uint16() {
		kind := w.skip(1)[0]
		if kind == 'n' {
			row = append(row, mapping.Value{})
			continue
		}
		if binaryWanted != (kind == 'b') {
			panic(fmt.Sprintf("column of kind %c", kind))
		}
		size := int(binary.BigEndian.Uint32(w.skip(4)))
		row = append(row, mapping.Value{Data: w.skip(size), Binary: kind == 'b'})
	}
	return row
}

type wire struct{ rest []byte }

func (w *wire) skip(n int) []byte {
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}

func (w *wire) uint16() uint16 { return binary.BigEndian.Uint16(w.skip(2)) }

func (w *wire) text() string {
	for i, c := range w.rest {
		if c == 0 {
			return string(w.skip(i + 1)[:i])
		}
	}
	panic("no end")
}

// TestATypeThatNobodyKnowsIsReadAsText: its binary format cannot be decoded.
func TestATypeThatNobodyKnowsIsReadAsText(t *testing.T) {
	t.Parallel()
	m, err := mapping.New(mapping.Config{})
	require.NoError(t, err)
	columns, row := values(t, user(text("payload", "{}")), false)
	columns[2].Type = 99999
	table, err := m.Bind(columns)
	require.NoError(t, err)
	got, err := table.Message(row)
	require.NoError(t, err)
	require.Equal(t, "10711fa5", string(got.Key))
	row[2].Binary = true
	_, err = table.Message(row)
	require.ErrorIs(t, err, mapping.ErrRow)
	require.ErrorContains(t, err, "column aggregateid: type OID 99999")
}

func TestAJSONBOfAnotherVersionIsNotGuessed(t *testing.T) {
	t.Parallel()
	m, err := mapping.New(mapping.Config{})
	require.NoError(t, err)
	columns, row := values(t, user(jsonb("payload", "{}")), true)
	table, err := m.Bind(columns)
	require.NoError(t, err)
	row[4].Data[0] = 2
	_, err = table.Message(row)
	require.ErrorContains(t, err, "column payload: an unknown version of jsonb")
}
