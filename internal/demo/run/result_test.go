package run

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo"
)

func TestAResultIsCountedAndMeasured(t *testing.T) {
	w := newWorld(t)
	w.reset()
	var r Result
	r.summarize(w.facts())
	require.Equal(t, Result{
		Orders: 4, Completed: 1, Compensated: 2, Parked: 1,
		OrdersPerSecond:    0.6, // three in five seconds
		DecisionsPerSecond: 2.4, // twelve
		MessagesPerOrder:   2.3, // nine of four
		LatencyMS:          Latency{P50: 2000, P95: 3000, P99: 3000},
		ParkedOrders:       []ParkedOrder{{"o-parked", "shipping_exhausted"}},
	}, r)
}

func TestPercentiles(t *testing.T) {
	var took []time.Duration
	for n := 1; n <= 100; n++ {
		took = append(took, time.Duration(n)*time.Millisecond)
	}
	require.Equal(t, 50.0, percentile(took, 50))
	require.Equal(t, 95.0, percentile(took, 95))
	require.Equal(t, 99.0, percentile(took, 99))
	require.Equal(t, 1.0, percentile(took[:1], 50))
	require.Equal(t, 0.0, percentile(nil, 99))
}

func TestTheJSONHasWhatIsPromised(t *testing.T) {
	var r Result
	r.add(Check{Name: "a", OK: true, Want: "1", Got: "1"})
	require.True(t, r.OK)
	r.add(Check{Name: "b", Want: "1", Got: "2"})
	require.False(t, r.OK)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(text, &object))
	for _, key := range []string{"orders", "completed", "compensated", "parked", "orders_per_second", "decisions_per_second", "latency_ms", "checks", "ok"} {
		require.Contains(t, object, key)
	}
	require.Equal(t, map[string]any{"name": "b", "ok": false, "want": "1", "got": "2"}, object["checks"].([]any)[1])
	require.Equal(t, map[string]any{"p50": 0.0, "p95": 0.0, "p99": 0.0}, object["latency_ms"])
}

func TestTheTableIsForPeople(t *testing.T) {
	r := Result{
		Orders: 6919, Completed: 6238, Compensated: 680, Parked: 1, Requests: 7021,
		OrdersPerSecond: 69.45, DecisionsPerSecond: 284.6, MessagesPerOrder: 7.2, LatencyMS: Latency{P50: 412.4, P95: 3201, P99: 9120}, Seconds: 104.2, Folder: "/tmp/troupe-demo-1",
		Chaos:        &Chaos{RelaysKilled: 43, ServicesKilled: 44, ConnectionsCut: 327, MessagesDoubled: 2823},
		ParkedOrders: []ParkedOrder{{"cdnow-00007", "shipping_exhausted"}},
		Stuck:        "  orders: 1 × shipping_intent (running)\n",
	}
	r.add(Check{Name: "shipments = completed orders", OK: true, Want: "6238", Got: "6238"},
		Check{Name: "every outbox is empty", Want: "0", Got: "1: order: 1"})
	var b strings.Builder
	require.NoError(t, r.Table(&b))
	want, err := os.ReadFile("testdata/table.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())

	r.Style = demo.Choreography
	b.Reset()
	require.NoError(t, r.Table(&b))
	require.Contains(t, b.String(), "\nthroughput     69.5 orders/s\n", "there are no sagas")
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	var b strings.Builder
	p := &progress{w: &b, width: 120}
	p.print("posting")
	p.showCounts(10, 1234, counts{Running: 9, Completed: 1})
	require.Equal(t, "posting\n", b.String(), "not at once")
	p.shown = p.shown.Add(-time.Second)
	p.showCounts(1200, 1234, counts{Running: 9, Completed: 1100, Compensated: 90, Parked: 1})
	require.Contains(t, b.String(), "\r\x1b[K1,200 of 1,234 posted · 9 in flight · 1,100 completed · 90 compensated · 1 parked")
	p.done()
	require.True(t, strings.HasSuffix(b.String(), "\r\x1b[K"), "and goes away")

	b.Reset()
	p.shown, p.width = p.shown.Add(-time.Second), 20
	p.showCounts(1200, 1234, counts{})
	require.Equal(t, "\r\x1b[K1,200 of 1,234 post", b.String(), "never wider than the terminal")
}

func TestProgressElsewhereIsNowAndThenALine(t *testing.T) {
	var b strings.Builder
	p := &progress{w: &b}
	for range 100 {
		p.showCounts(1, 2, counts{Running: 1})
	}
	require.Empty(t, b.String())
	p.shown = p.shown.Add(-plainEvery)
	p.showCounts(1, 2, counts{Running: 1})
	p.showCounts(1, 2, counts{Running: 1})
	p.done()
	require.Equal(t, 1, strings.Count(b.String(), "\n"))
	require.NotContains(t, b.String(), "\x1b")
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		require.Equal(t, want, grouped(n))
	}
}
