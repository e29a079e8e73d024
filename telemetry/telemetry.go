package telemetry

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-go/troupe/participant"
)

const scope = "github.com/troupe-go/troupe/telemetry"

// Config configures a Telemetry. The zero value works.
type Config struct {
	// Meters makes the instruments. Default: otel.GetMeterProvider().
	Meters metric.MeterProvider
	// Tracers makes the spans. Default: otel.GetTracerProvider().
	Tracers trace.TracerProvider
}

// Telemetry measures participants, flows and relays, one or several of each. It may be used concurrently.
type Telemetry struct {
	meter       metric.Meter
	tracer      trace.Tracer
	instruments instruments
	gauges      gauges

	sets         sync.Map // of metric.MeasurementOption, by label
	mu           sync.Mutex
	dependencies map[string]bool
}

// New makes the instruments.
func New(cfg Config) (*Telemetry, error) {
	if cfg.Meters == nil {
		cfg.Meters = otel.GetMeterProvider()
	}
	if cfg.Tracers == nil {
		cfg.Tracers = otel.GetTracerProvider()
	}
	t := &Telemetry{
		meter: cfg.Meters.Meter(scope), tracer: cfg.Tracers.Tracer(scope), dependencies: make(map[string]bool),
	}
	var err error
	if t.instruments, err = newInstruments(t.meter); err == nil {
		t.gauges, err = newGauges(t.meter)
	}
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return t, nil
}

// Instrument returns cfg with hooks that measure and trace, in addition to its own, and with Trace unless it has one.
func (t *Telemetry) Instrument(cfg participant.Config) participant.Config {
	group := cfg.Group
	if group == "" {
		group = cfg.Hop.String()
	}
	o := &observer{Telemetry: t, group: group}
	h := &cfg.Hooks
	h.Transaction = o.transaction(h.Transaction)
	h.Handler = o.handler(h.Handler)
	h.AfterCommit = both(h.AfterCommit, o.committed)
	h.Failed = both(h.Failed, o.failed)
	h.Held = both(h.Held, o.held)
	h.Passed = both(h.Passed, o.passed)
	h.Breaker = both(h.Breaker, o.breaker)
	h.Fired = both(h.Fired, o.fired)
	fetched := h.Fetched
	h.Fetched = func(topic string, partition int32, messages int) {
		if fetched != nil {
			fetched(topic, partition, messages)
		}
		o.fetched(topic, partition, messages)
	}
	if cfg.Trace == nil {
		cfg.Trace = Trace
	}
	return cfg
}

// observer implements the hooks of one participant.
type observer struct {
	*Telemetry
	group string
}

func both[T any](first, second func(T)) func(T) {
	if first == nil {
		return second
	}
	return func(of T) {
		first(of)
		second(of)
	}
}

// deriving is a hook that may return another context, and a function that is called at the end.
type deriving[T, E any] = func(context.Context, T) (context.Context, func(E))

// derived runs first and then second with the context of first. Their end functions run in the reverse order.
func derived[T, E any](first, second deriving[T, E]) deriving[T, E] {
	if first == nil {
		return second
	}
	return func(ctx context.Context, of T) (context.Context, func(E)) {
		ctx, one := first(ctx, of)
		ctx, two := second(ctx, of)
		switch {
		case one == nil:
			return ctx, two
		case two == nil:
			return ctx, one
		}
		return ctx, func(end E) {
			two(end)
			one(end)
		}
	}
}
