package run

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/troupe-go/troupe/internal/demo"
)

// Table writes the result for people.
func (r *Result) Table(w io.Writer) error {
	t := &table{}
	t.row("orders", "%s posted in %s requests", grouped(r.Orders), grouped(r.Requests))
	t.row("  completed", "%s", grouped(r.Completed))
	t.row("  compensated", "%s", grouped(r.Compensated))
	t.row("  parked", "%s", grouped(r.Parked))
	for _, o := range r.ParkedOrders[:min(len(r.ParkedOrders), 20)] {
		t.row("", "%s in state %s", o.ID, o.State)
	}
	if more := len(r.ParkedOrders) - 20; more > 0 {
		t.row("", "and %s more", grouped(more))
	}
	if r.Style == demo.Choreography {
		t.row("throughput", "%.1f orders/s", r.OrdersPerSecond)
	} else {
		t.row("throughput", "%.1f orders/s; %.0f decisions/s", r.OrdersPerSecond, r.DecisionsPerSecond)
	}
	t.row("messages", "%.1f an order", r.MessagesPerOrder)
	t.row("latency", "p50 %s · p95 %s · p99 %s", milliseconds(r.LatencyMS.P50), milliseconds(r.LatencyMS.P95), milliseconds(r.LatencyMS.P99))
	if c := r.Chaos; c != nil {
		t.row("chaos", "%d relays and %d services killed · %d connections cut · %d messages sent twice",
			c.RelaysKilled, c.ServicesKilled, c.ConnectionsCut, c.MessagesDoubled)
	}
	if r.Replaced > 0 {
		t.row("upgrade", "%d replacements of processes: by this version, by the previous one, by this one again", r.Replaced)
	}
	t.row("took", "%.1f s in all", r.Seconds)
	t.row("logs", "%s", r.Folder)
	t.line("")
	width := 0
	for _, c := range r.Checks {
		width = max(width, utf8.RuneCountInString(c.Name))
	}
	passed := 0
	for _, c := range r.Checks {
		padded := c.Name + strings.Repeat(" ", width-utf8.RuneCountInString(c.Name))
		if c.OK {
			passed++
			t.line("✓ %s  %s", padded, c.Got)
			continue
		}
		t.line("✗ %s  want %s, got %s", padded, c.Want, c.Got)
	}
	t.line("")
	if r.Stuck != "" {
		t.line("Nothing moved any more:\n%s", strings.TrimRight(r.Stuck, "\n"))
		t.line("")
	}
	if r.OK {
		t.line("All %d checks hold.", passed)
	} else {
		t.line("%d of %d checks do not hold.", len(r.Checks)-passed, len(r.Checks))
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

type table struct{ b strings.Builder }

func (t *table) line(format string, args ...any) {
	_, _ = fmt.Fprintf(&t.b, format+"\n", args...)
}

func (t *table) row(name, format string, args ...any) {
	t.line("%-14s %s", name, fmt.Sprintf(format, args...))
}

func milliseconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2f s", ms/1000)
}
