package run

import (
	"cmp"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/demo"
)

// A Result is the result of a run. Its JSON is the last line of troupe demo --output json.
type Result struct {
	Style       demo.Style `json:"style"`
	Orders      int        `json:"orders"` // posted
	Completed   int        `json:"completed"`
	Compensated int        `json:"compensated"`
	Parked      int        `json:"parked"`

	OrdersPerSecond    float64 `json:"orders_per_second"`    // orders that ended, from the first row to the last end
	DecisionsPerSecond float64 `json:"decisions_per_second"` // made by the order service as coordinator, in the same time
	MessagesPerOrder   float64 `json:"messages_per_order"`   // on the flow's topics, copies not counted
	LatencyMS          Latency `json:"latency_ms"`           // from an order's row to its end, by the order database's clock

	Checks []Check `json:"checks"`
	OK     bool    `json:"ok"` // all checks passed

	Seconds      float64       `json:"seconds"` // the whole run, servers included
	Requests     int           `json:"requests"`
	Chaos        *Chaos        `json:"chaos,omitempty"`
	Replaced     int           `json:"replaced,omitempty"` // replacements of a process by another version
	ParkedOrders []ParkedOrder `json:"parked_orders,omitempty"`
	Stuck        string        `json:"stuck,omitempty"` // where the orders are that do not change any more
	Flow         string        `json:"flow"`
	Folder       string        `json:"folder"` // of the logs
}

// Latency is in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// A ParkedOrder waits for an operator.
type ParkedOrder struct {
	ID    string `json:"order_id"`
	State string `json:"state"`
}

// summarize counts and measures the orders that ended. A parked order has no latency: it waits.
func (r *Result) summarize(f *facts) {
	r.Orders = len(f.posted)
	var took []time.Duration
	var first, last time.Time
	decisions := 0
	for _, o := range f.orders {
		switch o.Status {
		case completed:
			r.Completed++
		case compensated:
			r.Compensated++
		case parked:
			r.Parked++
			r.ParkedOrders = append(r.ParkedOrders, ParkedOrder{o.ID, o.State})
		}
		if first.IsZero() || o.Created.Before(first) {
			first = o.Created
		}
		if o.Ended == nil {
			continue
		}
		decisions += len(f.logs[o.Saga])
		took = append(took, o.Ended.Sub(o.Created))
		if o.Ended.After(last) {
			last = *o.Ended
		}
	}
	slices.SortFunc(r.ParkedOrders, func(a, b ParkedOrder) int { return cmp.Compare(a.ID, b.ID) })
	if span := last.Sub(first).Seconds(); len(took) > 0 && span > 0 {
		r.OrdersPerSecond = round(float64(len(took)) / span)
		r.DecisionsPerSecond = round(float64(decisions) / span)
	}
	if len(f.orders) > 0 {
		r.MessagesPerOrder = round(float64(len(f.distinct())) / float64(len(f.orders)))
	}
	slices.Sort(took)
	r.LatencyMS = Latency{P50: percentile(took, 50), P95: percentile(took, 95), P99: percentile(took, 99)}
}

// percentile returns the n-th percentile of sorted by the nearest-rank method, in milliseconds; 0 if sorted is empty.
func percentile(sorted []time.Duration, n int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*n + 99) / 100
	return round(float64(sorted[max(rank, 1)-1]) / float64(time.Millisecond))
}

// round rounds to one decimal.
func round(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }

func (r *Result) add(checks ...Check) {
	r.Checks = append(r.Checks, checks...)
	r.OK = !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.OK })
}
