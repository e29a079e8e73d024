package grantstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// oddValues are texts of values that a program may not expect, by type.
var oddValues = map[string][]string{
	"text":                     {"", " ", "%", "'", "\u202e", "é", "\x1b[2J", "null", "{}", `{"a":`, strings.Repeat("x", 300), strings.Repeat("é", 1_000_000)},
	"bytea":                    {"", `\x00`, `\xff`, `\x7b7d`, `\x0000000001`, `\x` + strings.Repeat("7b", 1_000_000)},
	"integer":                  {"0", "-1", "1", "2147483647", "-2147483648"},
	"smallint":                 {"0", "-1", "1", "32767", "-32768"},
	"bigint":                   {"0", "-1", "1", "9223372036854775807", "-9223372036854775808"},
	"double precision":         {"0", "-1", "NaN", "Infinity", "-Infinity", "1e308", "5e-324"},
	"real":                     {"0", "NaN", "Infinity"},
	"numeric":                  {"0", "NaN", "1e1000"},
	"boolean":                  {"true", "false"},
	"uuid":                     {"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"},
	"timestamp with time zone": {"infinity", "-infinity", "epoch", "now", "4713-01-01 BC", "0001-01-01", "9999-12-31 23:59:59", "294276-12-31"},
	"interval":                 {"0", "-1 day", "100000000 years", "1 month"},
	"jsonb": {"null", "[]", "{}", `""`, "0", "1e1000", `{"a": null}`, `{"": {"": [[]]}}`, "[" + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + "]",
		`"` + strings.Repeat("x", 1_000_000) + `"`},
	"pg_lsn":      {"0/0", "FFFFFFFF/FFFFFFFF"},
	"xid8":        {"0", "18446744073709551615"},
	"pg_snapshot": {"1:1:", "9223372036854775807:9223372036854775807:"},
	"name":        {"", "postgres"},
}

// Odd writes odd values as a role: rows with them, and changes of rows to them. A value is null, an odd array, one of oddValues, a text of the
// column's checks, or a value that a column with the same name has somewhere.
type Odd struct {
	role   Role
	rnd    *rand.Rand
	tables []oddTable
	known  map[string][]string // values by the name of their column
}

type oddTable struct {
	name           string
	insert, update []oddColumn
}

type oddColumn struct {
	name, kind string // kind is the type
	required   bool
}

// NewOdd reads what the role may insert and update in the schema troupe, and the values that are there.
func NewOdd(r Role, seed uint64) *Odd {
	r.t.Helper()
	o := &Odd{role: r, rnd: rand.New(rand.NewPCG(seed, 0)), known: make(map[string][]string)} //nolint:gosec // random cases, not secrets
	rows, err := r.at.Query(context.Background(), `
		SELECT c.oid::regclass::text, a.attname, format_type(a.atttypid, NULL),
			a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AS required,
			has_column_privilege($1, c.oid, a.attnum, 'INSERT'), has_column_privilege($1, c.oid, a.attnum, 'UPDATE')
		FROM pg_attribute AS a
		JOIN pg_class AS c ON c.oid = a.attrelid
		WHERE c.relnamespace = 'troupe'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		ORDER BY 1, a.attnum`, r.Name)
	require.NoError(r.t, err)
	var table string
	var column oddColumn
	var insert, update bool
	_, err = pgx.ForEachRow(rows, []any{&table, &column.name, &column.kind, &column.required, &insert, &update}, func() error {
		if len(o.tables) == 0 || o.tables[len(o.tables)-1].name != table {
			o.tables = append(o.tables, oddTable{name: table})
		}
		last := &o.tables[len(o.tables)-1]
		if insert {
			last.insert = append(last.insert, column)
		}
		if update {
			last.update = append(last.update, column)
		}
		return nil
	})
	require.NoError(r.t, err)
	for _, t := range o.tables {
		for _, c := range append(t.insert, t.update...) {
			o.learn(t.name, c.name)
		}
	}
	for table, name := range map[string]string{"rebuilds": "rebuild", "dead_letters": "dead_letter_id", "sagas": "saga_id"} {
		o.read(name, "SELECT id::text FROM troupe."+table+" LIMIT 20")
	}
	for _, handler := range o.known["handler"] {
		o.known["handlers"] = append(o.known["handlers"], `{"`+handler+`"}`)
	}
	return o
}

// learn reads the values of a column, and the texts that its checks name.
func (o *Odd) learn(table, column string) {
	quoted := pgx.Identifier{column}.Sanitize()
	o.read(column, "SELECT DISTINCT left("+quoted+"::text, 2000) FROM "+table+" WHERE "+quoted+" IS NOT NULL LIMIT 20")
	o.read(column, `
		SELECT found[1]
		FROM pg_constraint AS k
		JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
		CROSS JOIN regexp_matches(pg_get_constraintdef(k.oid), '''([^'']+)''::text', 'g') AS found
		WHERE k.contype = 'c' AND k.conrelid = $1::text::regclass AND a.attname = $2`, table, column)
}

func (o *Odd) read(column, sql string, args ...any) {
	rows, err := o.role.at.Query(context.Background(), sql, args...)
	require.NoError(o.role.t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(o.role.t, err)
	o.known[column] = append(o.known[column], values...)
}

// Write tries up to n statements for each table, and returns the number of rows that were inserted or changed, by table.
func (o *Odd) Write(n int) (done map[string]int) {
	o.role.t.Helper()
	pool := o.role.Pool()
	done = make(map[string]int)
	for _, t := range o.tables {
		for range n {
			var sql string
			var args []any
			switch update := o.rnd.IntN(2) == 0; {
			case update && len(t.update) > 0:
				sql, args = o.update(t)
			case len(t.insert) > 0:
				sql, args = o.insert(t)
			default:
				continue
			}
			if tag, err := pool.Exec(context.Background(), sql, args...); err == nil { // most violate a constraint
				done[t.name] += int(tag.RowsAffected())
			}
		}
	}
	return done
}

func (o *Odd) insert(t oddTable) (sql string, args []any) {
	var columns, values []string
	for _, c := range t.insert {
		if c.required || o.rnd.IntN(2) == 0 {
			columns, values = append(columns, pgx.Identifier{c.name}.Sanitize()), append(values, o.bind(c, &args))
		}
	}
	if len(columns) == 0 {
		return "INSERT INTO " + t.name + " DEFAULT VALUES", nil
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", t.name, strings.Join(columns, ", "), strings.Join(values, ", ")), args
}

// update changes one column of about a tenth of the rows.
func (o *Odd) update(t oddTable) (sql string, args []any) {
	c := t.update[o.rnd.IntN(len(t.update))]
	return fmt.Sprintf("UPDATE %s SET %s = %s WHERE random() < 0.1", t.name, pgx.Identifier{c.name}.Sanitize(), o.bind(c, &args)), args
}

// bind adds a value for the column to args, and returns its expression.
func (o *Odd) bind(c oddColumn, args *[]any) string {
	known := o.known[c.name]
	element, array := strings.CutSuffix(c.kind, "[]")
	odd := oddValues[element]
	switch n := o.rnd.IntN(10); {
	case n < 5 && len(known) > 0:
		*args = append(*args, known[o.rnd.IntN(len(known))])
	case n == 9 && !c.required, len(odd) == 0:
		*args = append(*args, nil)
	case array:
		*args = append(*args, []string{"{}", "{NULL}", "{{NULL},{NULL}}", "[5:5]={NULL}"}[o.rnd.IntN(4)])
	default:
		*args = append(*args, odd[o.rnd.IntN(len(odd))])
	}
	return fmt.Sprintf("$%d::text::%s", len(*args), c.kind)
}
