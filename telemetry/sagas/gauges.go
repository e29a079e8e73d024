package sagas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-go/troupe/saga/coordinator"
)

// gauges are read at each collection.
type gauges struct {
	open, stash, kept metric.Int64ObservableGauge
	age               metric.Float64ObservableGauge
}

func newGauges(m metric.Meter) (g gauges, err error) {
	var errs [4]error
	g.open, errs[0] = m.Int64ObservableGauge("troupe.saga.open", metric.WithUnit("{saga}"),
		metric.WithDescription("Sagas that have not ended, by status."))
	g.stash, errs[1] = m.Int64ObservableGauge("troupe.saga.stash", metric.WithUnit("{event}"),
		metric.WithDescription("Events that wait for their saga."))
	g.age, errs[2] = m.Float64ObservableGauge("troupe.saga.oldest.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the oldest saga that has not ended started, by status."))
	g.kept, errs[3] = m.Int64ObservableGauge("troupe.saga.kept", metric.WithUnit("{event}"),
		metric.WithDescription("Events that are kept for sagas that have not ended, until a step awaits them."))
	return g, errors.Join(errs[:]...)
}

// readLimit bounds the time that a collection waits for the database.
const readLimit = 5 * time.Second

// Observe reads c's Stats at each collection of metrics, as long as the MeterProvider exists. If the database does not answer
// within 5 s, the gauges are absent and the SDK's error handler gets the error. It needs no Instrument, and Instrument needs no
// Observe.
func (m *Metrics) Observe(c *coordinator.Coordinator) error {
	g := m.gauges
	_, err := m.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, readLimit)
		defer cancel()
		stats, err := c.Stats(ctx)
		if err != nil {
			return err
		}
		for _, s := range stats.Open {
			with := m.with(label{group: stats.Group, saga: s.Saga, status: string(s.Status)})
			o.ObserveInt64(g.open, int64(s.Count), with)
			o.ObserveFloat64(g.age, s.Oldest.Seconds(), with)
		}
		for name, n := range stats.Stashed {
			o.ObserveInt64(g.stash, int64(n), m.with(label{group: stats.Group, saga: name}))
		}
		for name, n := range stats.Kept {
			o.ObserveInt64(g.kept, int64(n), m.with(label{group: stats.Group, saga: name}))
		}
		return nil
	}, g.open, g.stash, g.kept, g.age)
	if err != nil {
		return fmt.Errorf("sagas: %w", err)
	}
	return nil
}
