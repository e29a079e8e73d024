package relay_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// park makes key hot wait: its first row cannot be sent.
func (s *stage) park() {
	s.t.Helper()
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, raw_headers) VALUES ($1, 'hot', 'Thing', 'x', '\x07')`, s.topic)
	testkit.Wait(s.t, "a parked row", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == 1, nil
	})
}

// Rows that came behind others of the key while no relay ran, and whose parked row is gone, are published in order; so are
// rows whose own line was deleted.
func TestRowsThatWaitAreFoundWhenWhatTheyWaitForIsGone(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	cfg := s.wal()
	s.start(cfg)
	s.waitStream()
	s.park()
	waiting := func(n int) {
		t.Helper()
		testkit.Wait(t, "rows that wait", func() (bool, error) {
			return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'waiting'") == n, nil
		})
	}
	s.insert(s.topic, "hot", "0")
	waiting(1)
	s.insert(s.topic, "other", "first")
	consumer := testkit.Consume(t, s.brokers, s.topic)
	consumer.WaitN(1)
	s.insert(s.topic, "hot", "1")
	waiting(2)
	s.exec("DELETE FROM troupe.outbox WHERE raw_headers IS NOT NULL")
	s.exec("DELETE FROM troupe.outbox_failures WHERE status = 'parked'")
	s.insert(s.topic, "hot", "2")
	require.Equal(t, []string{"0", "1", "2"}, values(ofKey(s.gather(4, s.topic), "hot")))
	waiting(0)
}

// BenchmarkParkedKey publishes a backlog of other keys, in each round with many rows waiting behind a parked key and without
// such a key, and reports the medians of both rates, and of their ratio. s-first is the time until the first row behind the
// many.
func BenchmarkParkedKey(b *testing.B) {
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		for _, behind := range []int{20_000, 200_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", source, behind), func(b *testing.B) {
				s, _ := newServer(b, largeServer)
				cfg := s.config()
				cfg.Source, cfg.Log = source, zerolog.Nop()
				r := s.start(cfg)
				if source == relay.WAL {
					s.waitStream()
				}
				benchmarkParkedKey(b, parkedKey{
					behind: behind, relay: r, park: s.park,
					insert: func(key string, n int) {
						s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) SELECT $1, "+key+", 'Thing', '{}' FROM generate_series(1, $2::int) AS n", s.topic, n)
					},
					clear: func() {
						s.exec("TRUNCATE troupe.outbox_failures")
						s.exec("DELETE FROM troupe.outbox")
						s.exec("VACUUM troupe.outbox")
					},
				})
			})
		}
	}
}

// BenchmarkParkedKeyOfAMappedTable is BenchmarkParkedKey for a table with a mapping, whose waiting rows are recorded whole.
func BenchmarkParkedKeyOfAMappedTable(b *testing.B) {
	for _, behind := range []int{20_000, 200_000} {
		b.Run(strconv.Itoa(behind), func(b *testing.B) {
			s, _ := newServer(b, largeServer)
			s.exec(debeziumTable)
			s.eventTopic("order")
			cfg := s.mapped("public.outbox", s.routed(nil))
			cfg.Log, cfg.UnknownTopic = zerolog.Nop(), time.Millisecond
			r := s.start(cfg)
			s.waitTable(r)
			benchmarkParkedKey(b, parkedKey{
				behind: behind, relay: r,
				park: func() {
					s.insertEvent("none", "hot", "{}")
					testkit.Wait(b, "a parked row", func() (bool, error) {
						return s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'parked'") == 1, nil
					})
				},
				insert: func(key string, n int) {
					s.exec("INSERT INTO public.outbox SELECT troupe.uuidv7(), 'order', "+key+", 'T', '{}' FROM generate_series(1, $1::int) AS n", n)
				},
				clear: func() {
					s.exec("TRUNCATE troupe.mapped_failures")
					s.exec("TRUNCATE public.outbox")
				},
			})
		})
	}
}

var largeServer = map[string]string{"max_wal_size": "4GB", "shared_buffers": "256MB"}

// parkedKey is an outbox for benchmarkParkedKey.
type parkedKey struct {
	behind int // rows that wait behind the parked one
	relay  running
	park   func()                  // parks a row of key hot
	insert func(key string, n int) // inserts n rows; key is an expression of n
	clear  func()                  // deletes all rows
}

func benchmarkParkedKey(b *testing.B, o parkedKey) {
	rows := min(o.behind, 200_000)
	// publish inserts rows of other keys and returns the seconds from their commit to their end.
	publish := func(n int) float64 {
		from := o.relay.Status().Deleted
		o.insert("'k' || n % 1000", n)
		began := time.Now()
		testkit.Wait(b, "rows of other keys", func() (bool, error) { return o.relay.Status().Deleted >= from+int64(n), nil })
		return time.Since(began).Seconds()
	}
	publish(rows) // warm-up
	var without, with, left, first []float64
	for b.Loop() {
		without = append(without, float64(rows)/publish(rows))
		o.park()
		o.insert("'hot'", o.behind)
		first = append(first, publish(1))
		for range 3 { // claims find the rows that they can skip
			publish(20_000)
		}
		with = append(with, float64(rows)/publish(rows))
		left = append(left, with[len(with)-1]/without[len(without)-1])
		o.clear()
	}
	for unit, figures := range map[string][]float64{
		"rows/s-without": without, "rows/s-with": with, "left": left, "s-first": first,
	} {
		slices.Sort(figures)
		b.ReportMetric(figures[len(figures)/2], unit)
	}
	b.ReportMetric(0, "ns/op")
}
