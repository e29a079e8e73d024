package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A drained holds the results of a run with a backlog.
type drained struct {
	rows     int
	seconds  float64 // from the broker's first append to its last
	cpu      float64 // processor seconds of the relay, from the first row on
	postgres float64 // of all of Postgres
	broker   float64 // of Apache Kafka; 0: not known
	peakMB   float64 // of the relay
	lost     int
	doubled  int
	disorder int
}

func (d drained) rate() float64 { return float64(d.rows) / d.seconds }

// million returns a figure per million rows.
func (d drained) million(figure float64) float64 { return figure / float64(d.rows) * 1e6 }

// medianOf takes the median of each figure separately, except counts, which it sums.
func medianOf(all []drained) (m drained) {
	for _, d := range all {
		m.lost, m.doubled, m.disorder = m.lost+d.lost, m.doubled+d.doubled, m.disorder+d.disorder
	}
	m.rows = all[0].rows
	m.seconds = middle(all, func(d drained) float64 { return d.seconds })
	m.cpu = middle(all, func(d drained) float64 { return d.cpu })
	m.postgres = middle(all, func(d drained) float64 { return d.postgres })
	m.broker = middle(all, func(d drained) float64 { return d.broker })
	m.peakMB = middle(all, func(d drained) float64 { return d.peakMB })
	return m
}

func middle[T any](all []T, figure func(T) float64) float64 {
	figures := make([]float64, len(all))
	for i, of := range all {
		figures[i] = figure(of)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

func drainHeading() {
	fmt.Printf("%-38s %9s %8s %8s %8s %8s %8s %8s %5s %7s %8s\n",
		"", "rows/s", "of floor", "of dbz", "cpu s/M", "pg s/M", "kfk s/M", "peak MB", "lost", "doubled", "disorder")
}

// show prints a run, with its rate as a fraction of the floor's and of Debezium's if these are known.
func (d drained) show(name string, floor, debezium float64) {
	ratio := func(of float64) string {
		if of == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", d.rate()/of)
	}
	broker := ""
	if d.broker > 0 {
		broker = fmt.Sprintf("%.2f", d.million(d.broker))
	}
	fmt.Printf("%-38s %9.0f %8s %8s %8.2f %8.2f %8s %8.1f %5d %7d %8d\n", name, d.rate(), ratio(floor), ratio(debezium),
		d.million(d.cpu), d.million(d.postgres), broker, d.peakMB, d.lost, d.doubled, d.disorder)
}

// A delay is the time of rows from the return of their commit to the consumer, at a steady rate.
type delay struct {
	rate                float64 // rows/s that the writers reached
	p50, p95, p99, p999 time.Duration
	cpu                 float64 // seconds a minute, of the relay
	postgres            float64
	peakMB              float64
	lost                int
	doubled             int
}

func (d *delay) percentiles(took []time.Duration) {
	slices.Sort(took)
	d.p50, d.p95, d.p99, d.p999 = percentile(took, 0.5), percentile(took, 0.95), percentile(took, 0.99), percentile(took, 0.999)
}

// percentile returns the smallest of the sorted values that is not exceeded by at least the fraction p of them.
func percentile[T cmp.Ordered](sorted []T, p float64) (at T) {
	if len(sorted) == 0 {
		return at
	}
	rank := int(p * float64(len(sorted)))
	if float64(rank) < p*float64(len(sorted)) {
		rank++
	}
	return sorted[max(rank, 1)-1]
}

func medianDelay(all []delay) (m delay) {
	of := func(figure func(delay) time.Duration) time.Duration {
		return time.Duration(middle(all, func(d delay) float64 { return float64(figure(d)) }))
	}
	for _, d := range all {
		m.lost, m.doubled = m.lost+d.lost, m.doubled+d.doubled
	}
	m.rate = middle(all, func(d delay) float64 { return d.rate })
	m.p50 = of(func(d delay) time.Duration { return d.p50 })
	m.p95 = of(func(d delay) time.Duration { return d.p95 })
	m.p99 = of(func(d delay) time.Duration { return d.p99 })
	m.p999 = of(func(d delay) time.Duration { return d.p999 })
	m.cpu = middle(all, func(d delay) float64 { return d.cpu })
	m.postgres = middle(all, func(d delay) float64 { return d.postgres })
	m.peakMB = middle(all, func(d delay) float64 { return d.peakMB })
	return m
}

func delayHeading() {
	fmt.Printf("%-38s %8s %9s %9s %9s %9s %9s %9s %8s %5s %7s\n",
		"", "rows/s", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "cpu s/min", "pg s/min", "peak MB", "lost", "doubled")
}

func (d delay) show(name string) {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	fmt.Printf("%-38s %8.0f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %8.1f %5d %7d\n", name, d.rate, ms(d.p50), ms(d.p95), ms(d.p99), ms(d.p999),
		d.cpu, d.postgres, d.peakMB, d.lost, d.doubled)
}
