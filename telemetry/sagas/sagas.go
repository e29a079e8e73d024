package sagas

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

const scope = "github.com/troupe-go/troupe/telemetry/sagas"

// Attributes.
const (
	keySaga      = attribute.Key("troupe.saga")             // the type, or _OTHER for an answer to a saga that does not exist
	keyStatus    = attribute.Key("troupe.saga.status")      // as package saga names them
	keyEvent     = attribute.Key("troupe.saga.event")       // the kind: started, answered, fired, …
	keyIgnored   = attribute.Key("troupe.saga.ignored")     // true: the event changed nothing, such as a duplicate
	keyStep      = attribute.Key("troupe.saga.step")        // name of the step
	keyOperation = attribute.Key("troupe.saga.operation")   // forward or compensate
	keyResult    = attribute.Key("troupe.saga.step.result") // how a step ended; see the package comment
)

const other = "_OTHER"

// Config configures Metrics. The zero value works.
type Config struct {
	// Meters makes the instruments. Default: otel.GetMeterProvider().
	Meters metric.MeterProvider
}

// Metrics measures coordinators, one or several. It may be used concurrently.
type Metrics struct {
	meter       metric.Meter
	instruments instruments
	gauges      gauges
	sets        sync.Map // of metric.MeasurementOption, by label
}

type instruments struct {
	started, ended, parked, decisions, conflicts, stashed metric.Int64Counter
	duration, step, lateness                              metric.Float64Histogram
}

// seconds has the boundaries for sagas, which last from milliseconds to weeks.
var seconds = metric.WithExplicitBucketBoundaries(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400, 604800)

// New makes the instruments.
func New(cfg Config) (*Metrics, error) {
	if cfg.Meters == nil {
		cfg.Meters = otel.GetMeterProvider()
	}
	m := &Metrics{meter: cfg.Meters.Meter(scope)}
	var err, more error
	if m.instruments, err = newInstruments(m.meter); err == nil {
		m.gauges, more = newGauges(m.meter)
	}
	if err = errors.Join(err, more); err != nil {
		return nil, fmt.Errorf("sagas: %w", err)
	}
	return m, nil
}

func newInstruments(m metric.Meter) (i instruments, err error) {
	counter := func(name, unit, description string) metric.Int64Counter {
		c, failed := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		err = errors.Join(err, failed)
		return c
	}
	histogram := func(name, description string) metric.Float64Histogram {
		h, failed := m.Float64Histogram(name, seconds, metric.WithUnit("s"), metric.WithDescription(description))
		err = errors.Join(err, failed)
		return h
	}
	i.started = counter("troupe.saga.started", "{saga}", "Sagas that began.")
	i.ended = counter("troupe.saga.ended", "{saga}", "Sagas that ended, by status.")
	i.parked = counter("troupe.saga.parked", "{parking}", "Times that a saga was parked, since a person must act.")
	i.decisions = counter("troupe.saga.decisions", "{decision}", "Events that were decided on, by kind.")
	i.conflicts = counter("troupe.saga.conflicts", "{transaction}", "Transactions that gave way to another one and run again.")
	i.stashed = counter("troupe.saga.stashed", "{event}", "Events that came before their saga and were kept.")
	i.duration = histogram("troupe.saga.duration", "Time from the start of a saga to its end.")
	i.step = histogram("troupe.saga.step.duration", "Time from a step's command to what ended it.")
	i.lateness = histogram("troupe.schedules.lateness", "Time from an occurrence of a schedule until it began.")
	return i, err
}

// Instrument returns cfg with hooks that measure, in addition to its own.
func (m *Metrics) Instrument(cfg coordinator.Config) coordinator.Config {
	o := &observer{Metrics: m}
	if cfg.Participant != nil { // else coordinator.New returns the error
		o.group = cfg.Participant.Group()
	}
	cfg.Decided = both(cfg.Decided, o.decided)
	cfg.Stashed = both(cfg.Stashed, o.stashed)
	cfg.Conflict = both(cfg.Conflict, o.conflict)
	cfg.Scheduled = both(cfg.Scheduled, o.scheduled)
	return cfg
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

// observer implements the hooks of one coordinator.
type observer struct {
	*Metrics
	group string
	steps steps
}

// label holds all attributes of a measurement. It is a map key: sets are made once.
type label struct {
	group, saga, status, event string
	step, operation, end       string
	decided, ignored           bool // decided: ignored is an attribute
}

func (m *Metrics) with(l label) metric.MeasurementOption {
	if known, ok := m.sets.Load(l); ok {
		return known.(metric.MeasurementOption)
	}
	all := []attribute.KeyValue{semconv.MessagingConsumerGroupName(l.group)}
	text := func(key attribute.Key, value string) {
		if value != "" {
			all = append(all, key.String(value))
		}
	}
	text(keySaga, l.saga)
	text(keyStatus, l.status)
	text(keyEvent, l.event)
	text(keyStep, l.step)
	text(keyOperation, l.operation)
	text(keyResult, l.end)
	if l.decided {
		all = append(all, keyIgnored.Bool(l.ignored))
	}
	made, _ := m.sets.LoadOrStore(l, metric.WithAttributeSet(attribute.NewSet(all...)))
	return made.(metric.MeasurementOption)
}

func (o *observer) decided(d coordinator.Decided) {
	ctx, name := context.Background(), d.State.Saga
	if name == "" {
		name = other
	}
	ignored := d.Effects.Ignored != "" || d.Effects.Refused != "" // a refused event is tried again in a message of its own
	l := label{group: o.group, saga: name, event: string(d.Event.Kind), decided: true, ignored: ignored}
	o.instruments.decisions.Add(ctx, 1, o.with(l))
	if ignored {
		return
	}
	l = label{group: o.group, saga: name}
	if d.Event.Kind == saga.Started {
		o.instruments.started.Add(ctx, 1, o.with(l))
	}
	if d.Effects.Alert != "" {
		o.instruments.parked.Add(ctx, 1, o.with(l))
	}
	for _, e := range o.steps.take(d) {
		l := label{group: o.group, saga: name, step: e.step, operation: e.operation, end: e.end}
		o.instruments.step.Record(ctx, e.took.Seconds(), o.with(l))
	}
	if d.State.Ended() { // by this decision: an event after it would be ignored
		l.status = string(d.State.Status)
		o.instruments.ended.Add(ctx, 1, o.with(l))
		o.instruments.duration.Record(ctx, d.State.EndedAt.Sub(d.State.StartedAt).Seconds(), o.with(l))
	}
}

func (o *observer) stashed(s coordinator.Stashed) {
	o.instruments.stashed.Add(context.Background(), 1, o.with(label{group: o.group, saga: s.Saga}))
}

func (o *observer) scheduled(s coordinator.Scheduled) {
	o.instruments.lateness.Record(context.Background(), s.Late.Seconds(), o.with(label{group: o.group}))
}

func (o *observer) conflict(error) {
	o.instruments.conflicts.Add(context.Background(), 1, o.with(label{group: o.group}))
}
