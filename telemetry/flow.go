package telemetry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/troupe-go/troupe/flow"
)

// Attributes.
const (
	keyExpectation = attribute.Key("troupe.expectation")        // name of the expectation
	keyStatus      = attribute.Key("troupe.expectation.status") // waiting or missing
)

// readLimit bounds the time that a collection waits for the database.
const readLimit = 5 * time.Second

// ObserveFlow reads the Stats of s at each collection of metrics. They come from the database, with one statement, and cover all
// processes of the service together: take the maximum of the processes and not the sum. If the database does not answer within 5 s,
// the gauges are absent and the SDK's error handler gets the error.
func (t *Telemetry) ObserveFlow(s *flow.Service) error {
	meter := t.meter
	open, err1 := meter.Int64ObservableGauge("troupe.expectation.open", metric.WithUnit("{expectation}"),
		metric.WithDescription("Expectations whose event has not come, by status: waiting or missing."))
	late, err2 := meter.Int64ObservableGauge("troupe.expectation.late", metric.WithUnit("{expectation}"),
		metric.WithDescription("Expectations whose event came after its time, until their rows are deleted."))
	overdue, err3 := meter.Float64ObservableGauge("troupe.expectation.overdue.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the longest overdue expectation was due."))
	alerts, err4 := meter.Int64ObservableGauge("troupe.expectation.alerts", metric.WithUnit("{alert}"),
		metric.WithDescription("Alerts that the receiver has not accepted yet."))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	group := semconv.MessagingConsumerGroupName(s.Participant().Group())
	_, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, readLimit)
		defer cancel()
		stats, err := s.Stats(ctx)
		if err != nil {
			return err
		}
		for _, st := range stats {
			name := keyExpectation.String(st.Name)
			with := metric.WithAttributes(group, name)
			o.ObserveInt64(open, int64(st.Waiting), metric.WithAttributes(group, name, keyStatus.String("waiting")))
			o.ObserveInt64(open, int64(st.Missing), metric.WithAttributes(group, name, keyStatus.String("missing")))
			o.ObserveInt64(late, int64(st.Late), with)
			o.ObserveFloat64(overdue, st.Overdue.Seconds(), with)
			o.ObserveInt64(alerts, int64(st.Alerts), with)
		}
		return nil
	}, open, late, overdue, alerts)
	if err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	return nil
}
