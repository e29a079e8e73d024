package relay_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// BenchmarkRelayDrain publishes a backlog: rows/s, and allocations per row. With the embedded broker, which is in this
// process, the allocations include the broker's; with TROUPE_KAFKA they are the relay's alone.
func BenchmarkRelayDrain(b *testing.B) {
	const rows = 100_000
	s := newStage(b)
	if source == relay.WAL { // the backlog must be in the log
		r := s.start(s.config())
		testkit.Wait(b, "the slot", func() (bool, error) {
			return s.count("SELECT count(*) FROM troupe.relay_state WHERE sweep IS NULL AND published IS NOT NULL") == 1, nil
		})
		if err := r.stop(); err != nil {
			b.Fatal(err)
		}
	}
	var took time.Duration
	var before, after runtime.MemStats
	var allocations, bytes uint64
	for b.Loop() {
		s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
			SELECT $1, 'k' || n % 1000, 'Thing', convert_to(repeat('x', 300), 'UTF8') FROM generate_series(1, $2) AS n`, s.topic, rows)
		cfg := s.config()
		cfg.Log, cfg.Interval = zerolog.Nop(), time.Second
		runtime.ReadMemStats(&before)
		began := time.Now()
		r := s.start(cfg)
		testkit.Wait(b, "the last row", func() (bool, error) { return r.Status().Deleted >= rows, nil })
		took += time.Since(began)
		runtime.ReadMemStats(&after)
		allocations += after.Mallocs - before.Mallocs
		bytes += after.TotalAlloc - before.TotalAlloc
		if err := r.stop(); err != nil {
			b.Fatal(err)
		}
	}
	total := float64(b.N) * rows
	b.ReportMetric(total/took.Seconds(), "rows/s")
	b.ReportMetric(float64(allocations)/total, "allocs/row")
	b.ReportMetric(float64(bytes)/total, "B/row")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRelayLatency measures a single row from its commit to the end of its delete.
func BenchmarkRelayLatency(b *testing.B) {
	s := newStage(b)
	deleted := make(chan struct{}, 1)
	cfg := s.config()
	cfg.Log = zerolog.Nop()
	cfg.Hooks.Deleted = func(int) { deleted <- struct{}{} }
	s.start(cfg)
	for b.Loop() {
		s.exec(`WITH row AS (INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', 'Thing', '{}') RETURNING 1)
			SELECT pg_notify('troupe_outbox', '') FROM row`, s.topic)
		<-deleted
	}
}

// BenchmarkRelayDelivery publishes a backlog with at-least-once and with exactly-once, in turns, so that a busy machine slows
// both. The backlog consists of transactions of ten rows. The ratio is of the medians.
func BenchmarkRelayDelivery(b *testing.B) {
	const rows = 400_000
	for _, every := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		b.Run("every "+every.String(), func(b *testing.B) {
			s := newStage(b)
			var atLeast, exactly []float64
			for b.Loop() {
				atLeast = append(atLeast, s.drain(rows, relay.AtLeastOnce, every))
				exactly = append(exactly, s.drain(rows, relay.ExactlyOnce, every))
			}
			slices.Sort(atLeast)
			slices.Sort(exactly)
			b.ReportMetric(atLeast[len(atLeast)/2], "at-least-once-rows/s")
			b.ReportMetric(exactly[len(exactly)/2], "exactly-once-rows/s")
			b.ReportMetric(exactly[len(exactly)/2]/atLeast[len(atLeast)/2], "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// drain returns how many rows per second one relay published from a backlog of its slot.
func (s *stage) drain(rows int, delivery relay.Delivery, every time.Duration) float64 {
	cfg := s.config()
	cfg.Log, cfg.Source, cfg.Delivery, cfg.Transactions = zerolog.Nop(), relay.WAL, delivery, every
	first := s.start(cfg)
	testkit.Wait(s.t, "a stream", func() (bool, error) {
		return s.count(`SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()`) == 1, nil
	})
	if err := first.stop(); err != nil {
		s.t.Fatal(err)
	}
	s.exec(fmt.Sprintf(`DO $$ BEGIN FOR t IN 1..%d LOOP
		INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT '%s', 'k' || n %% 1000, 'Thing', convert_to(repeat('x', 300), 'UTF8') FROM generate_series(t * 10, t * 10 + 9) AS n;
		COMMIT; END LOOP; END $$`, rows/10, s.topic))
	done := make(chan struct{})
	var ended sync.Once
	var deleted atomic.Int64
	var began time.Time
	cfg.Hooks.Deleted = func(n int) {
		if deleted.Add(int64(n)) >= int64(rows) { // at least once, it may be more
			ended.Do(func() { close(done) })
		}
	}
	var once sync.Once
	cfg.Hooks.Claimed = func(int) { once.Do(func() { began = time.Now() }) }
	r := s.start(cfg)
	<-done
	took := time.Since(began)
	if err := r.stop(); err != nil {
		s.t.Fatal(err)
	}
	return float64(rows) / took.Seconds()
}
