package telemetry

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-go/troupe/participant"
)

// gauges are read at each collection.
type gauges struct {
	lag, running, waiting, limited, held, later, paused, quarantined, open, ready, stranded metric.Int64ObservableGauge
	age                                                                                     metric.Float64ObservableGauge
}

func newGauges(m metric.Meter) (g gauges, err error) {
	whole := func(name, unit, description string) metric.Int64ObservableGauge {
		gauge, failed := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		err = errors.Join(err, failed)
		return gauge
	}
	g.lag = whole("troupe.lag", "{message}", "Messages from the first that has not ended to the end of the partition.")
	g.running = whole("troupe.inflight", "{message}", "Messages in transactions under way.")
	g.waiting = whole("troupe.queue.depth", "{message}", "Messages that were fetched and have not begun.")
	g.limited = whole("troupe.limited", "{key}", "Keys that wait for a rate or concurrency limit of a handler.")
	g.held = whole("troupe.keys.held", "{key}", "Keys that wait for a retry.")
	g.stranded = whole("troupe.stranded", "{message}", "Stored messages of the group that no member like this one handles.")
	g.later = whole("troupe.retry_topic.buffered", "{message}", "Messages of a retry topic that were fetched and are not due.")
	g.paused = whole("troupe.paused", "{partition}", "1 while nothing is fetched, since enough waits or nothing is due.")
	g.quarantined = whole("troupe.quarantined", "{message}", "Messages still to run in quarantine after a crash.")
	g.open = whole("troupe.breaker.open", "{partition}", "1 while a partition waits for something that is away.")
	g.ready = whole("troupe.ready", "{participant}", "1 while the participant is ready.")
	var failed error
	g.age, failed = m.Float64ObservableGauge("troupe.lag.age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest message that has not ended."))
	return g, errors.Join(err, failed)
}

// Observe reads p's Stats and Ready at each collection of metrics, as long as the MeterProvider exists. It needs no Instrument,
// and Instrument needs no Observe.
func (t *Telemetry) Observe(p *participant.Participant) error {
	g := t.gauges
	_, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.observe(o, p)
		return nil
	}, g.lag, g.age, g.running, g.waiting, g.limited, g.held, g.later, g.paused, g.quarantined, g.open, g.ready, g.stranded)
	if err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	return nil
}

func (t *Telemetry) observe(o metric.Observer, p *participant.Participant) {
	g, stats := t.gauges, p.Stats()
	for _, s := range stats.Partitions {
		l := label{group: stats.Group, topic: s.Topic, partition: s.Partition}
		with := t.with(l)
		if s.Next >= 0 && s.End >= 0 {
			o.ObserveInt64(g.lag, s.Lag, with)
			o.ObserveFloat64(g.age, s.Age.Seconds(), with)
		}
		o.ObserveInt64(g.running, int64(s.Running), with)
		o.ObserveInt64(g.waiting, int64(s.Waiting), with)
		o.ObserveInt64(g.limited, int64(s.Limited), with)
		o.ObserveInt64(g.held, int64(s.Held), with)
		o.ObserveInt64(g.later, int64(s.Later), with)
		o.ObserveInt64(g.paused, oneIf(s.Paused), with)
		o.ObserveInt64(g.quarantined, int64(s.Quarantined), with)
		if s.WaitsFor != "" {
			l.dependency = t.dependency(s.WaitsFor)
		}
		o.ObserveInt64(g.open, oneIf(s.WaitsFor != ""), t.with(l))
	}
	stranded := make(map[string]int64)
	for _, s := range stats.Stranded {
		stranded[s.Topic] += int64(s.Messages)
	}
	for topic, n := range stranded {
		o.ObserveInt64(g.stranded, n, t.with(label{group: stats.Group, topic: topic, partition: -1}))
	}
	o.ObserveInt64(g.ready, oneIf(p.Ready() == nil), t.with(label{group: stats.Group, partition: -1}))
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
