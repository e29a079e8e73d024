package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A service writes any value that the types of its columns have. Each row is published or parked, and stops no other, whether the relay
// reads it from the table or from the log.
func TestOddRowsOfAMappedTableStopNoOther(t *testing.T) {
	t.Parallel()
	needsLog(t)
	columns := []struct{ name, kind string }{
		{"raw", "bytea"}, {"amount", "numeric"}, {"ratio", "float8"}, {"tags", "text[]"}, {"doc", "jsonb"}, {"born", "date"}, {"zoned", "timestamptz"},
		{"plain", "timestamp"}, {"span", "interval"}, {"clock", "timetz"}, {"range", "tstzrange"}, {"bits", "varbit"}, {"money", "money"}, {"place", "point"},
		{"net", "inet"}, {"note", "text"}, {"many", "int4multirange"}, {"composed", "pair"}, {"search", "tsvector"},
	}
	values := []string{
		"raw = '\\x00ff'", "raw = ''", "amount = 'NaN'", "amount = 'infinity'", "amount = 1e-1000", "amount = 1e100000", "ratio = 'NaN'", "ratio = '-infinity'",
		"tags = '{}'", "tags = ARRAY[NULL, '', '\"', E'\\n', '{']", "tags = ARRAY[ARRAY['a'], ARRAY['b']]", "doc = 'null'", "doc = '\"\\u202e\"'",
		"doc = ('[' || repeat('[', 5000) || repeat(']', 5000) || ']')::jsonb", "doc = jsonb_build_object('n', 1e10000::numeric)", "born = 'infinity'",
		"born = '4713-01-01 BC'", "born = '5874897-12-31'", "zoned = 'infinity'", "zoned = '-infinity'", "zoned = '294276-12-31'", "zoned = '4713-01-01 BC'",
		"plain = 'infinity'", "plain = '294276-12-31'", "span = '178000000 years'", "clock = '24:00:00+15:59:59'", "range = '(,)'", "range = 'empty'",
		"bits = repeat('1', 10000)::varbit", "money = '-92233720368547758.08'", "place = '(Infinity,NaN)'", "net = '::ffff:0:0/96'",
		"note = E'\\u202e\\u0000'", "note = E'\\u202eevil\\u2066'", "note = E'\\x01\\x1b[2J\\r\\n'", "note = repeat('é', 700000)", "note = ''",
		"many = '{[1,2),[5,)}'", "composed = ROW(NULL, NULL)", "composed = ROW('a\"b', 1)", "search = 'a b'",
		"aggregateid = NULL", "aggregateid = ''", "aggregateid = repeat('k', 900000)", "aggregateid = E'\\u202e\\x01'", "aggregatetype = ''", "aggregatetype = NULL",
		"aggregatetype = repeat('t', 1000)", "aggregatetype = E'a\\nb'", "aggregatetype = '../..'", "type = NULL", "type = ''", "type = repeat('T', 2000)", "type = E'\\x1b[2J'",
		"payload = NULL", "payload = 'null'", "payload = '\"\"'", "payload = jsonb_build_object('x', repeat('y', 2000000))", "at = 'infinity'", "at = '-infinity'",
		"at = '294276-12-31'", "at = '4713-01-01 BC'", "at = '1969-12-31'", "at = '9999-12-31'", "at = NULL",
	}
	s := newStage(t)
	s.exec("CREATE TYPE pair AS (a text, b int)")
	table := "CREATE TABLE public.outbox (id uuid NOT NULL DEFAULT gen_random_uuid(), aggregatetype text DEFAULT 'order', aggregateid text, type text DEFAULT 'T', payload jsonb DEFAULT '1', at timestamptz"
	placement := ""
	for n, c := range columns {
		table += ", " + c.name + " " + c.kind
		placement += "," + c.name + []string{":header", ":envelope"}[n%2]
	}
	s.exec(table + ")")
	topic := s.eventTopic("order")
	refused := 0
	insert := func() {
		for n, value := range values {
			s.exec("INSERT INTO public.outbox (aggregateid, payload) VALUES ($1, to_jsonb($1::text))", fmt.Sprint("before-", n))
			column, assigned, _ := strings.Cut(value, " = ")
			if _, err := s.pool.Exec(t.Context(), fmt.Sprintf("INSERT INTO public.outbox (%s) VALUES (%s)", column, assigned)); err != nil {
				require.Contains(t, value, `\u0000`, "%s: %v", value, err)
				refused++
			}
		}
	}
	insert()
	r := s.start(s.mapped("public.outbox", s.routed(map[string]string{
		"table.fields.additional.placement": placement[1:], "table.field.event.timestamp": "at",
	})))
	s.waitTable(r)
	insert()
	require.Equal(t, 2, refused)
	s.insertEvent("order", "last", `"last"`)
	consumer := testkit.Consume(t, s.brokers, topic)
	testkit.Wait(t, "the others", func() (bool, error) {
		var keys []string
		for _, record := range consumer.Records() {
			keys = append(keys, string(record.Key))
		}
		for n := range values {
			if !slices.Contains(keys, fmt.Sprint("before-", n)) {
				return false, fmt.Errorf("before-%d: %d records, failures: %d", n, len(keys), s.count("SELECT count(*) FROM troupe.mapped_failures"))
			}
		}
		return slices.Contains(keys, "last"), nil
	})
	require.NoError(t, r.Ready())
}
