package relay_test

import (
	"fmt"
	"slices"
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
		return s.count("SELECT count(*) FROM troupe.outbox_trouble WHERE status = 'parked'") == 1, nil
	})
}

// Rows that came behind others of the key while no relay ran, and whose parked row is gone, are published in order; so are
// rows whose own line was deleted.
func TestRowsThatWaitAreFoundWhenWhatTheyWaitForIsGone(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	cfg := s.wal()
	s.start(cfg)
	s.waitStream()
	s.park()
	waiting := func(n int) {
		t.Helper()
		testkit.Wait(t, "rows that wait", func() (bool, error) {
			return s.count("SELECT count(*) FROM troupe.outbox_trouble WHERE status = 'waiting'") == n, nil
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
	s.exec("DELETE FROM troupe.outbox_trouble WHERE status = 'parked'")
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
			b.Run(fmt.Sprintf("%s/%d", source, behind), func(b *testing.B) { benchmarkParkedKey(b, source, behind) })
		}
	}
}

func benchmarkParkedKey(b *testing.B, source relay.Source, behind int) {
	rows := min(behind, 200_000)
	s, _ := newServer(b, map[string]string{"max_wal_size": "4GB", "shared_buffers": "256MB"})
	cfg := s.config()
	cfg.Source, cfg.Log = source, zerolog.Nop()
	r := s.start(cfg)
	if source == relay.WAL {
		s.waitStream()
	}
	insert := func(key string, n int) {
		s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) SELECT $1, "+key+", 'Thing', '{}' FROM generate_series(1, $2::int) AS n", s.topic, n)
	}
	// publish inserts rows of other keys and returns the seconds from their commit to their end.
	publish := func(n int) float64 {
		from := r.Status().Deleted
		insert("'k' || n % 1000", n)
		began := time.Now()
		testkit.Wait(b, "rows of other keys", func() (bool, error) { return r.Status().Deleted >= from+int64(n), nil })
		return time.Since(began).Seconds()
	}
	publish(rows) // warm-up
	var without, with, left, first []float64
	for b.Loop() {
		without = append(without, float64(rows)/publish(rows))
		s.park()
		insert("'hot'", behind)
		first = append(first, publish(1))
		for range 3 { // claims find the rows that they can skip
			publish(20_000)
		}
		with = append(with, float64(rows)/publish(rows))
		left = append(left, with[len(with)-1]/without[len(without)-1])
		s.exec("TRUNCATE troupe.outbox_trouble")
		s.exec("DELETE FROM troupe.outbox")
		s.exec("VACUUM troupe.outbox")
	}
	for unit, figures := range map[string][]float64{
		"rows/s-without": without, "rows/s-with": with, "left": left, "s-first": first,
	} {
		slices.Sort(figures)
		b.ReportMetric(figures[len(figures)/2], unit)
	}
	b.ReportMetric(0, "ns/op")
}
