package relay_test

import (
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

// Rows that came behind others of the key while nobody looked, whose parked row is gone, go out in order; so do those
// whose own line was given up.
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
	require.Equal(t, []string{"0", "1", "2"}, values(ofKey(consumer.WaitN(4), "hot")))
	waiting(0)
}

// BenchmarkParkedKey publishes rows of other keys beside a parked key with 1,000,000 rows behind it, and without one: rates of
// both, and what is left of the rate.
func BenchmarkParkedKey(b *testing.B) {
	const behind, rows = 1_000_000, 50_000
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		b.Run(string(source), func(b *testing.B) {
			s, _ := newServer(b, map[string]string{"max_wal_size": "4GB", "shared_buffers": "256MB"})
			cfg := s.config()
			cfg.Source, cfg.Log = source, zerolog.Nop()
			r := s.start(cfg)
			if source == relay.WAL {
				s.waitStream()
			}
			rate := func() float64 {
				began, from := time.Now(), r.Status().Deleted
				for done := 0; done < rows; done += 1000 {
					s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
						SELECT $1, 'k' || n % 100, 'Thing', '{}' FROM generate_series(1, 1000) AS n`, s.topic)
				}
				testkit.Wait(b, "the rows", func() (bool, error) { return r.Status().Deleted >= from+rows, nil })
				return rows / time.Since(began).Seconds()
			}
			rate() // warm
			var without, with float64
			for b.Loop() {
				without = rate()
				s.park()
				s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
					SELECT $1, 'hot', 'Thing', '{}' FROM generate_series(1, $2::int)`, s.topic, behind)
				noted := time.Now()
				s.insert(s.topic, "k1", "behind them in the log")
				from := r.Status().Deleted
				testkit.Wait(b, "the row behind", func() (bool, error) { return r.Status().Deleted > from || time.Since(noted) > 110*time.Second, nil })
				b.ReportMetric(time.Since(noted).Seconds(), "s-noted")
				with = rate()
				s.exec("TRUNCATE troupe.outbox_trouble")
				s.exec("DELETE FROM troupe.outbox WHERE key = 'hot'")
			}
			b.ReportMetric(without, "rows/s-without")
			b.ReportMetric(with, "rows/s-with")
			b.ReportMetric(with/without, "left")
			b.ReportMetric(0, "ns/op")
		})
	}
}
