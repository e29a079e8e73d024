package main

import (
	"slices"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// A drained holds the results of a run with a backlog.
type drained struct {
	rows     int
	seconds  float64 // from the broker's first append to its last
	cpu      float64 // processor seconds of the relay, from the first row on
	postgres float64 // of all of Postgres
	broker   float64 // of Apache Kafka; 0: not known
	peakMB   float64 // of the relay
	lost     float64
	doubled  float64
	disorder float64

	ofFloor, ofDebezium float64 // rate as a fraction of theirs; 0: not known
}

func (d drained) rate() float64 { return float64(d.rows) / d.seconds }

// million returns a figure per million rows.
func (d drained) million(figure float64) float64 { return figure / float64(d.rows) * 1e6 }

var drainTable = harness.Table[drained]{Width: 38, Columns: []harness.Column[drained]{
	{Head: "rows/s", Width: 9, Figure: func(d *drained) *float64 { return &d.seconds }, Shown: drained.rate},
	{Head: "of floor", Width: 8, Decimals: 2, Figure: func(d *drained) *float64 { return &d.ofFloor }, Optional: true},
	{Head: "of dbz", Width: 8, Decimals: 2, Figure: func(d *drained) *float64 { return &d.ofDebezium }, Optional: true},
	{Head: "cpu s/M", Width: 8, Decimals: 2, Figure: func(d *drained) *float64 { return &d.cpu }, Shown: func(d drained) float64 { return d.million(d.cpu) }},
	{Head: "pg s/M", Width: 8, Decimals: 2, Figure: func(d *drained) *float64 { return &d.postgres }, Shown: func(d drained) float64 { return d.million(d.postgres) }},
	{Head: "kfk s/M", Width: 8, Decimals: 2, Figure: func(d *drained) *float64 { return &d.broker }, Shown: func(d drained) float64 { return d.million(d.broker) }, Optional: true},
	{Head: "peak MB", Width: 8, Decimals: 1, Figure: func(d *drained) *float64 { return &d.peakMB }},
	{Head: "lost", Width: 5, Figure: func(d *drained) *float64 { return &d.lost }, Sum: true},
	{Head: "doubled", Width: 7, Figure: func(d *drained) *float64 { return &d.doubled }, Sum: true},
	{Head: "disorder", Width: 8, Figure: func(d *drained) *float64 { return &d.disorder }, Sum: true},
}}

// A delay is the time of rows from the return of their commit to the consumer, at a steady rate.
type delay struct {
	rate                float64 // rows/s that the writers reached
	p50, p95, p99, p999 float64 // ms
	cpu                 float64 // seconds a minute, of the relay
	postgres            float64
	peakMB              float64
	lost                float64
	doubled             float64
}

func (d *delay) percentiles(times []time.Duration) {
	slices.Sort(times)
	ms := func(p float64) float64 { return harness.Percentile(times, p).Seconds() * 1000 }
	d.p50, d.p95, d.p99, d.p999 = ms(0.5), ms(0.95), ms(0.99), ms(0.999)
}

var delayTable = harness.Table[delay]{Width: 38, Columns: []harness.Column[delay]{
	{Head: "rows/s", Width: 8, Figure: func(d *delay) *float64 { return &d.rate }},
	{Head: "p50 ms", Width: 9, Decimals: 2, Figure: func(d *delay) *float64 { return &d.p50 }},
	{Head: "p95 ms", Width: 9, Decimals: 2, Figure: func(d *delay) *float64 { return &d.p95 }},
	{Head: "p99 ms", Width: 9, Decimals: 2, Figure: func(d *delay) *float64 { return &d.p99 }},
	{Head: "p99.9 ms", Width: 9, Decimals: 2, Figure: func(d *delay) *float64 { return &d.p999 }},
	{Head: "cpu s/min", Width: 9, Decimals: 2, Figure: func(d *delay) *float64 { return &d.cpu }},
	{Head: "pg s/min", Width: 9, Decimals: 2, Figure: func(d *delay) *float64 { return &d.postgres }},
	{Head: "peak MB", Width: 8, Decimals: 1, Figure: func(d *delay) *float64 { return &d.peakMB }},
	{Head: "lost", Width: 5, Figure: func(d *delay) *float64 { return &d.lost }, Sum: true},
	{Head: "doubled", Width: 7, Figure: func(d *delay) *float64 { return &d.doubled }, Sum: true},
}}

// An idling is the cost of a relay whose outbox is empty.
type idling struct {
	statements float64 // a minute, as the server logs them
	cpu        float64 // seconds a minute
	postgres   float64
}

var idleTable = harness.Table[idling]{Width: 38, Columns: []harness.Column[idling]{
	{Head: "statements/min", Width: 14, Figure: func(i *idling) *float64 { return &i.statements }},
	{Head: "cpu s/min", Width: 10, Decimals: 2, Figure: func(i *idling) *float64 { return &i.cpu }},
	{Head: "pg s/min", Width: 10, Decimals: 2, Figure: func(i *idling) *float64 { return &i.postgres }},
}}

// A writing is the rate of the writers, as a fraction of their rate without a relay.
type writing struct{ rate, ofAlone float64 }

var writersTable = harness.Table[writing]{Width: 38, Columns: []harness.Column[writing]{
	{Head: "rows/s", Width: 9, Figure: func(w *writing) *float64 { return &w.rate }},
	{Head: "of alone", Width: 9, Decimals: 2, Figure: func(w *writing) *float64 { return &w.ofAlone }, Optional: true},
}}
