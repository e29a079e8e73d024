package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// oddTable has a column of each form in which text reaches the relay: text, jsonb, json, an array, a domain, bytes.
const oddTable = `CREATE DOMAIN public.label AS varchar(40);
	CREATE TABLE public.outbox (id text, aggregatetype text, aggregateid text, type text, payload %s, note label, tags text[], raw bytea)`

// insertOdd inserts an event whose text is given as the database stores it, whatever the client's encoding.
func (s *stage) insertOdd(id, kind, key, note, payload string) {
	s.t.Helper()
	stored := func(text string) []byte { return []byte(text) }
	s.exec(`INSERT INTO public.outbox
		SELECT convert_from($1, e), convert_from($2, e), convert_from($3, e), 'T', convert_from($5, e)::`+s.column("payload")+`, convert_from($4, e),
			ARRAY[convert_from($4, e), 'x'], $4
		FROM getdatabaseencoding() AS e`, stored(id), stored(kind), stored(key), stored(note), stored(payload))
}

func (s *stage) column(name string) (kind string) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(),
		"SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'public.outbox'::regclass AND attname = $1", name).Scan(&kind))
	return kind
}

func shown(r *kgo.Record) string {
	return fmt.Sprintf("%s %s %q", r.Key, strings.Join(headersOf(r), " "), r.Value)
}

// A row of a mapped table becomes the same record whether it is read from the table, from the log, or from the lines of failed rows,
// and whether the server or the relay converts its text to UTF-8. A row whose text cannot be converted is parked, its key waits, and
// the others go on.
func TestTextOfAMappedTableInAnyEncoding(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, c := range []struct{ encoding, fine, odd string }{
		{"LATIN1", "caf\xe9", ""},
		{"WIN1252", "caf\xe9", "caf\x81"},
		{"SQL_ASCII", "café", "caf\xe9"},
	} {
		for _, payload := range []string{"text", "json", "jsonb"} {
			t.Run(c.encoding+" "+payload, func(t *testing.T) {
				t.Parallel()
				s, server := newServer(t, nil)
				s.inEncoding(server.URL, c.encoding)
				s.exec(fmt.Sprintf(oddTable, payload))
				topic := s.eventTopic("order")
				cfg := s.mapped("public.outbox", s.routed(map[string]string{
					"table.fields.additional.placement": "note:header,tags:header,raw:header"}))
				if payload == "json" {
					cfg.Source, cfg.Delivery = relay.WAL, relay.ExactlyOnce
				}
				consumer := testkit.Consume(t, s.brokers, topic)
				recordOf := func(id string) (found string) {
					t.Helper()
					testkit.Wait(t, id, func() (bool, error) {
						for _, r := range consumer.Records() {
							if header(r, "id") == id {
								found = shown(r)
							}
						}
						return found != "", nil
					})
					return strings.ReplaceAll(found, id, "ID")
				}
				body := func(text string) string { return `{"name": "` + text + `"}` }
				fine := func(id string) { s.insertOdd(id, "order", c.fine, c.fine, body(c.fine)) }
				fine("table")
				if c.odd != "" {
					s.insertOdd("odd table", "order", "held", c.odd, body("x"))
					s.insertOdd("behind table", "order", "held", "x", body(c.fine))
				}
				r := s.start(cfg)
				s.waitTable(r)
				fine("log")
				first := recordOf("table")
				require.Equal(t, first, recordOf("log"))
				require.Contains(t, first, "note=café tags={café,x}")
				require.True(t, strings.HasPrefix(first, "café "), first)
				require.Contains(t, first, fmt.Sprintf("%q", body("café")))

				// Behind a parked row, whose topic is too long.
				s.insertOdd("parked", strings.Repeat("o", 300), c.fine, "x", body("x"))
				fine("behind parked")
				s.insertOdd("free", "order", "free", c.fine, body(c.fine))
				recordOf("free")
				waiting := func(n int) {
					t.Helper()
					testkit.Wait(t, fmt.Sprintf("%d waiting rows", n), func() (bool, error) {
						return s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'waiting'") == n, nil
					})
				}
				held := 1
				if c.odd != "" {
					held = 2
				}
				waiting(held)
				if c.odd != "" {
					s.insertOdd("odd header", "order", "header", c.odd, body("x"))
					s.insertOdd("odd payload", "order", "payload", "x", body(c.odd))
					s.insertOdd("odd key", "order", c.odd, "x", body("x"))
					s.insertOdd("odd topic"+c.odd, c.odd, "topic", "x", body("x"))
					for _, key := range []string{"header", "payload", c.odd, "topic"} {
						s.insertOdd("behind "+key, "order", key, "x", body("x"))
					}
					s.insertOdd("last", "order", "free", c.fine, body(c.fine))
					recordOf("last")
					testkit.Wait(t, "the odd rows to be parked", func() (bool, error) {
						return s.count(`SELECT count(*) FROM troupe.mapped_failures
							WHERE status = 'parked' AND event_id LIKE 'odd %' AND last_error LIKE '%' || $1 || '%'`, c.encoding) == 5, nil
					})
					for _, r := range consumer.Records() {
						require.NotContains(t, header(r, "id"), "behind", "its key waits")
					}
					// Tried again, also by another relay, they are parked again.
					require.NoError(t, r.stop())
					s.exec("UPDATE troupe.mapped_failures SET status = 'retrying', next_try = clock_timestamp() WHERE event_id LIKE 'odd %'")
					s.start(cfg)
					testkit.Wait(t, "the odd rows to be parked again", func() (bool, error) {
						return s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'parked' AND event_id LIKE 'odd %' AND attempts = 2") == 5, nil
					})
					fine("log once more")
				}
				s.exec("DELETE FROM troupe.mapped_failures WHERE status = 'parked'")
				require.Equal(t, first, recordOf("behind parked"))
				if c.odd != "" {
					recordOf("behind table")
					require.Equal(t, first, recordOf("log once more"))
				}
				var order []string
				for _, r := range consumer.Records() {
					if string(r.Key) == "café" && !slices.Contains(order, header(r, "id")) {
						order = append(order, header(r, "id"))
					}
				}
				require.Equal(t, []string{"table", "log", "behind parked", "log once more"}[:len(order)], order)
			})
		}
	}
}
