package relay_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// inEncoding changes the stage's database to one in an encoding.
func (s *stage) inEncoding(create func(name string) string, encoding string) *pgxpool.Pool {
	s.t.Helper()
	s.exec("CREATE DATABASE odd ENCODING '" + encoding + "' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	address := create("odd")
	require.NoError(s.t, migrations.Up(s.t.Context(), address))
	s.pool = poolOf(s.t, address)
	return s.pool
}

// insertStored inserts a row whose key and topic are text as the database stores it, whatever the client's encoding.
func (s *stage) insertStored(topic, key, header, payload string) {
	s.t.Helper()
	stored := func(text string) []byte { return []byte(text) }
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, headers)
		SELECT convert_from($1, e), convert_from($2, e), 'Thing', $4, jsonb_build_object('x-name', convert_from($3, e))
		FROM getdatabaseencoding() AS e`, stored(topic), stored(key), stored(header), []byte(payload))
}

// A row whose text cannot be converted to UTF-8 is parked with the reason, and its key waits. Others go on, also those whose text
// the server converts.
func TestARowThatIsNotUTF8IsParkedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ encoding, odd, fine, want string }{
		{"SQL_ASCII", "caf\xe9", "café", "café"},
		{"WIN1252", "caf\x81", "caf\xe9", "café"},
	} {
		for _, way := range []string{"poll", "shards", "wal", "exactly-once"} {
			t.Run(c.encoding+" "+way, func(t *testing.T) {
				t.Parallel()
				s, server := newServer(t, nil)
				s.inEncoding(server.URL, c.encoding)
				cfg := s.config()
				switch way {
				case "shards":
					cfg.Source, cfg.Shards = relay.Poll, 3
				case "exactly-once":
					cfg.Source, cfg.Delivery = relay.WAL, relay.ExactlyOnce
				default:
					cfg.Source = relay.Source(way)
				}
				r := s.start(cfg)
				if cfg.Source == relay.WAL {
					s.waitStream()
				}
				s.insertStored(s.topic, c.fine, c.fine, "0")
				first := testkit.Consume(t, s.brokers, s.topic).WaitN(1)[0]
				require.Equal(t, c.want, string(first.Key))
				require.Equal(t, c.want, header(first, "x-name"))

				s.insertStored(s.topic, c.odd, "", "odd key")
				s.insertStored(s.topic, "header", c.odd, "odd header")
				s.insertStored(s.flow+c.odd, "topic", "", "odd topic")
				for _, key := range []string{c.odd, "header", "topic", c.fine, "free"} {
					s.insertStored(s.topic, key, "", "behind "+key)
				}
				consumer := testkit.Consume(t, s.brokers, s.topic)
				published := func(want ...string) {
					t.Helper()
					testkit.Wait(t, strings.Join(want, ", "), func() (bool, error) {
						came := values(consumer.Records())
						return !slices.ContainsFunc(want, func(one string) bool { return !slices.Contains(came, one) }), nil
					})
				}
				published("0", "behind "+c.fine, "behind free")
				parked := func(payload string, attempts int) int {
					return s.count(`SELECT count(*) FROM troupe.outbox_failures t JOIN troupe.outbox o USING (position)
						WHERE t.status = 'parked' AND t.last_error LIKE '%' || $1 || '%' AND t.attempts = $2
						  AND o.payload LIKE $3`, c.encoding, attempts, []byte(payload))
				}
				testkit.Wait(t, "the odd rows to be parked", func() (bool, error) { return parked("odd %", 1) == 3, nil })
				testkit.Wait(t, "the status after the commits", func() (bool, error) { return r.Status().Parked >= 3, nil })

				rows, _, err := desk.Desk{DB: s.pool}.List(t.Context(), desk.Filter{}, desk.Page{Rows: 10})
				require.NoError(t, err)
				require.GreaterOrEqual(t, len(rows), 3)

				// Tried again, it is parked again, and holds nothing up.
				s.exec("UPDATE troupe.outbox_failures SET status = 'retrying', next_try = clock_timestamp() WHERE status = 'parked'")
				testkit.Wait(t, "the odd rows to be parked again", func() (bool, error) { return parked("odd %", 2) == 3, nil })
				// Another relay reads what the first one has left.
				require.NoError(t, r.stop())
				s.insertStored(s.topic, "stopped", c.odd, "odd header")
				s.insertStored(s.topic, "free", "", "later")
				s.start(cfg)
				published("later")
				testkit.Wait(t, "the fourth odd row to be parked", func() (bool, error) { return parked("odd %", 1) == 1, nil })

				// The row is discarded, and its key goes on.
				require.NotContains(t, values(consumer.Records()), "behind header", "its key waits")
				s.exec(`WITH gone AS (DELETE FROM troupe.outbox WHERE payload LIKE 'odd %'::bytea RETURNING position)
					DELETE FROM troupe.outbox_failures t USING gone WHERE t.position = gone.position`)
				published("behind header", "behind topic")
				testkit.Wait(t, "the row behind the odd key to be parked", func() (bool, error) {
					return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == 1, nil
				})
			})
		}
	}
}

// What the relay records has characters that the database's encoding lacks: a long topic is cut with an ellipsis, and so is an
// error. The row is parked all the same.
func TestAFailureIsRecordedInADatabaseOfAnyEncoding(t *testing.T) {
	t.Parallel()
	s, server := newServer(t, nil)
	s.inEncoding(server.URL, "LATIN1")
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		s.exec("TRUNCATE troupe.outbox, troupe.outbox_failures")
		cfg := s.config()
		cfg.Source = source
		r := s.start(cfg)
		if source == relay.WAL {
			s.waitStream()
		}
		s.insert(strings.Repeat("x", 300), "long", "0")
		s.insert(s.topic, "free", string(source))
		testkit.Wait(t, "the row to be parked", func() (bool, error) {
			return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == 1, nil
		})
		testkit.Wait(t, "the other row", func() (bool, error) { return r.Status().Published == 1, nil })
		require.NoError(t, r.stop())
	}
}

// The reason for the source has a character that the database's encoding lacks.
func TestTheSourceIsNotedInADatabaseOfAnyEncoding(t *testing.T) {
	t.Parallel()
	s, server := newServer(t, nil)
	s.inEncoding(server.URL, "LATIN1")
	s.exec("CREATE ROLE plain LOGIN PASSWORD 'plain'; GRANT ALL ON SCHEMA troupe TO plain; " +
		"GRANT ALL ON ALL TABLES IN SCHEMA troupe TO plain; GRANT ALL ON ALL SEQUENCES IN SCHEMA troupe TO plain")
	config := s.pool.Config()
	config.ConnConfig.User, config.ConnConfig.Password = "plain", "plain"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	cfg := s.config()
	cfg.Pool, cfg.Source, cfg.Delivery = pool, relay.Auto, relay.AtLeastOnce
	s.start(cfg)
	s.insert(s.topic, "k", "0")
	require.Len(t, s.gather(1, s.topic), 1)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.relay_leases WHERE source = 'poll' AND source_why LIKE '%REPLICATION%'"))
}

// TestARowThatIsNotUTF8BehindAFailedOneIsParked checks a row that no claim has read: it waits behind a failed row of its key when the
// relay changes from poll to the log, and its topic cannot be converted.
func TestARowThatIsNotUTF8BehindAFailedOneIsParked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ encoding, odd string }{{"SQL_ASCII", "caf\xe9"}, {"WIN1252", "caf\x81"}} {
		t.Run(c.encoding, func(t *testing.T) {
			t.Parallel()
			s, server := newServer(t, nil)
			s.inEncoding(server.URL, c.encoding)
			cfg := s.config()
			cfg.Source, cfg.UnknownTopic = relay.Poll, 100*time.Millisecond
			r := s.start(cfg)
			s.insertStored("bad topic!", "k", "", "first")
			const parked = "SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"
			testkit.Wait(t, "the row to be parked", func() (bool, error) { return s.count(parked) == 1, nil })
			s.insertStored(s.flow+c.odd, "k", "", "odd topic")
			require.NoError(t, r.stop())
			cfg.Source = relay.WAL
			s.start(cfg)
			s.waitStream()
			s.insertStored(s.topic, "free", "", "0")
			require.Len(t, s.gather(1, s.topic), 1)
			_, _, err := desk.Desk{DB: s.pool}.List(t.Context(), desk.Filter{}, desk.Page{Rows: 10})
			require.NoError(t, err)

			s.exec(`WITH gone AS (DELETE FROM troupe.outbox WHERE payload = 'first'::bytea RETURNING position)
				DELETE FROM troupe.outbox_failures t USING gone WHERE t.position = gone.position`)
			testkit.Wait(t, "the odd row to be parked", func() (bool, error) { return s.count(parked) == 1, nil })
			s.insertStored(s.topic, "free", "", "1")
			require.Len(t, s.gather(2, s.topic), 2)
		})
	}
}
