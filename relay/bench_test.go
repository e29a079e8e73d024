package relay_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// BenchmarkRelayDrain publishes a backlog: rows/s, and allocations per row. With the embedded broker, which is in this
// process, the allocations are its own as well; with TROUPE_KAFKA they are the relay's alone.
func BenchmarkRelayDrain(b *testing.B) {
	const rows = 100_000
	s := newStage(b)
	if source == relay.WAL { // the backlog is to be in the log
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
		testkit.Wait(b, "the last row", func() (bool, error) { return r.Status().Deleted == rows, nil })
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

// BenchmarkRelayLatency is the way of a single row, from the commit to the end of its delete.
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
