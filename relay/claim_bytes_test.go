package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// largestClaim returns hooks that record the number of rows of the largest claim.
func largestClaim() (hooks relay.Hooks, largest func() int) {
	var mu sync.Mutex
	most := 0
	hooks.Claimed = func(rows int) {
		mu.Lock()
		defer mu.Unlock()
		most = max(most, rows)
	}
	return hooks, func() int {
		mu.Lock()
		defer mu.Unlock()
		return most
	}
}

// Failed rows that are tried again, and rows that waited behind one, are read in claims of some megabytes, as other rows are. With
// a topic that is missing for a while, all of its rows are due at once.
func TestFailedRowsAreReadInClaimsOfSomeMegabytes(t *testing.T) {
	t.Parallel()
	const rows, size, most = 20, 500_000, 12 // a claim ends after 4 MB
	text := func(n int) string { return fmt.Sprintf("%03d", n) + strings.Repeat("x", size) }
	for _, mapped := range []bool{false, true} {
		for _, waiting := range []bool{false, true} {
			t.Run(fmt.Sprintf("mapped %t, waiting %t", mapped, waiting), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				topic, failures := s.flow+".later.events", "troupe.outbox_failures"
				cfg := s.config()
				cfg.Source = relay.WAL
				gather := func(n int, topic string) []*kgo.Record { return s.gather(n, topic) }
				insert := func(key, payload string) {
					s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Thing', $3)", topic, key, []byte(payload))
				}
				if mapped {
					s.exec("CREATE TABLE public.events (id uuid DEFAULT gen_random_uuid(), aggregatetype text DEFAULT 'later', aggregateid text, type text DEFAULT 'T', payload text)")
					cfg = s.mapped("public.events", s.routed(nil))
					failures, gather = "troupe.mapped_failures", s.gatherEvents
					insert = func(key, payload string) {
						s.exec("INSERT INTO public.events (aggregateid, payload) VALUES ($1, $2)", key, payload)
					}
				}
				var largest func() int
				cfg.Hooks, largest = largestClaim()
				cfg.UnknownTopic = time.Hour // the next try of a row is up to six minutes later
				r := s.start(cfg)
				if mapped {
					s.waitTable(r)
				} else {
					s.waitStream()
				}
				key := func(n int) string {
					if waiting {
						return "k"
					}
					return fmt.Sprint(n)
				}
				for n := range rows {
					insert(key(n), text(n))
				}
				testkit.Wait(t, "failed rows", func() (bool, error) { return s.count("SELECT count(*) FROM "+failures) == rows, nil })
				s.provision(kafka.Topic{Name: topic, Partitions: 1})
				testkit.Wait(t, "the failed rows to be published", func() (bool, error) {
					// The relay deletes these rows meanwhile, in another order.
					s.exec("UPDATE " + failures + " SET next_try = clock_timestamp() WHERE ctid = ANY(ARRAY(SELECT ctid FROM " + failures +
						" WHERE status = 'retrying' FOR UPDATE SKIP LOCKED))")
					return s.count("SELECT count(*) FROM "+failures) == 0, nil
				})
				published := values(gather(rows, topic))
				if !waiting {
					slices.Sort(published)
				}
				for n, value := range published {
					require.Equal(t, text(n)[:10], value[:10])
				}
				require.LessOrEqual(t, largest(), most, "rows of the largest claim")
			})
		}
	}
}

// The limit of a claim counts each column as it is in memory: a service may write large keys, types and topics, and headers
// that are small on disk since they are compressed.
func TestEachColumnOfARowCountsForTheSizeOfAClaim(t *testing.T) {
	t.Parallel()
	const rows, most = 6, 2
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		for column, value := range map[string]string{
			"topic": "$1 || repeat('x', 5000000)", "type": "repeat('x', 5000000)", "key": "n || repeat('x', 5000000)",
			"key_bytes": "convert_to(n || repeat('x', 5000000), 'UTF8')", "headers": "jsonb_build_object('x', repeat('x', 5000000))",
		} {
			t.Run(fmt.Sprintf("%s, %s", source, column), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				expressions := map[string]string{"topic": "$1::text", "type": "'Thing'", "key": "n::text", "key_bytes": "NULL", "headers": "'{}'"}
				expressions[column] = value
				insert := func() {
					s.exec(fmt.Sprintf("INSERT INTO troupe.outbox (topic, type, key, key_bytes, headers) SELECT %s, %s, %s, %s, %s FROM generate_series(1, $2::int) AS n WHERE $1::text <> ''",
						expressions["topic"], expressions["type"], expressions["key"], expressions["key_bytes"], expressions["headers"]), s.topic, rows)
				}
				cfg := s.config()
				cfg.Source = source
				var largest func() int
				cfg.Hooks, largest = largestClaim()
				if source == relay.Poll {
					insert()
					s.start(cfg)
				} else {
					s.start(cfg)
					s.waitStream()
					insert()
				}
				testkit.Wait(t, "parked rows", func() (bool, error) {
					return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == rows, nil
				})
				require.LessOrEqual(t, largest(), most, "rows of the largest claim")
			})
		}
	}
}

// A replay reads some megabytes at once, however many rows a second it may publish.
func TestAReplayReadsSomeMegabytesAtOnce(t *testing.T) {
	t.Parallel()
	const rows, most = 20, 10 // of 500 kB
	s := newStage(t)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) SELECT $1, 'k', 'Thing', convert_to(n || repeat('x', 500000), 'UTF8')
		FROM generate_series(1, $2::int) AS n`, s.topic, rows)
	s.published()
	var last, largest int64
	p, err := relay.Replay{Rate: 10_000}.Run(t.Context(), s.config(), func(p relay.ReplayProgress) {
		last, largest = p.Published, max(largest, p.Published-last)
	})
	require.NoError(t, err)
	require.EqualValues(t, rows, p.Published)
	require.LessOrEqual(t, largest, int64(most), "rows read at once")
	testkit.Consume(t, s.brokers, s.topic).WaitN(rows)
}
