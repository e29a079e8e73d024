package flows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-go/troupe/internal/flow/watch"
)

const scope = "github.com/troupe-go/troupe/internal/flow/telemetry"

// Attributes.
const (
	KeyFlow = attribute.Key("troupe.flow")       // the flow's name
	KeyKind = attribute.Key("troupe.watch.kind") // missing, late, stuck_join or unexpected
)

var kinds = []watch.Kind{watch.Missing, watch.Late, watch.Stuck, watch.Unexpected}

// Config configures Metrics. The zero value works.
type Config struct {
	// Meters makes the instruments. Default: otel.GetMeterProvider().
	Meters metric.MeterProvider
}

// Metrics measures watchers, one or several. It may be used concurrently.
type Metrics struct {
	meter    metric.Meter
	findings metric.Int64Counter
	messages metric.Int64ObservableCounter
	behind   metric.Float64ObservableGauge
}

// New makes the instruments.
func New(cfg Config) (*Metrics, error) {
	if cfg.Meters == nil {
		cfg.Meters = otel.GetMeterProvider()
	}
	m := &Metrics{meter: cfg.Meters.Meter(scope)}
	var errs [3]error
	m.findings, errs[0] = m.meter.Int64Counter("troupe.watch.findings", metric.WithUnit("{finding}"),
		metric.WithDescription("Findings: where a flow was not as its services declare it, by kind."))
	m.messages, errs[1] = m.meter.Int64ObservableCounter("troupe.watch.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that were stored."))
	m.behind, errs[2] = m.meter.Float64ObservableGauge("troupe.watch.behind", metric.WithUnit("s"),
		metric.WithDescription("Time since all that the brokers had was stored and judged."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("flows: %w", err)
	}
	return m, nil
}

// Instrument returns cfg with a hook that counts findings, in addition to its own. The counter of each kind starts with 0: else
// the first finding would be no increase.
func (m *Metrics) Instrument(cfg watch.Config) watch.Config {
	of := make(map[watch.Kind]metric.MeasurementOption)
	for _, kind := range kinds {
		text := strings.ReplaceAll(string(kind), " ", "_")
		of[kind] = metric.WithAttributeSet(attribute.NewSet(KeyFlow.String(cfg.Flow), KeyKind.String(text)))
		m.findings.Add(context.Background(), 0, of[kind])
	}
	first := cfg.Found
	cfg.Found = func(ctx context.Context, f watch.Finding) {
		if first != nil {
			first(ctx, f)
		}
		m.findings.Add(ctx, 1, of[f.Kind])
	}
	return cfg
}

// Observe reads w's Stats at each collection of metrics, as long as the MeterProvider exists. It needs no Instrument, and
// Instrument needs no Observe.
func (m *Metrics) Observe(w *watch.Watcher) error {
	_, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := w.Stats()
		with := metric.WithAttributeSet(attribute.NewSet(KeyFlow.String(s.Flow)))
		o.ObserveInt64(m.messages, s.Messages, with)
		o.ObserveFloat64(m.behind, s.Behind.Seconds(), with)
		return nil
	}, m.messages, m.behind)
	if err != nil {
		return fmt.Errorf("flows: %w", err)
	}
	return nil
}
