package telemetry

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/troupe-go/troupe/participant"
)

// Attributes of Troupe's own.
const (
	keyResult     = attribute.Key("troupe.result")     // how a message ended; package comment
	keySource     = attribute.Key("troupe.source")     // its source: "topic" or "held"
	keyHandler    = attribute.Key("troupe.handler")    // group/type, or the group if no handler matches
	keyCommitted  = attribute.Key("troupe.committed")  // of a transaction: false if it was rolled back
	keyDependency = attribute.Key("troupe.dependency") // as passed to retry.Unavailable, or "the database"
	keyAttempt    = attribute.Key("troupe.attempt")    // of a span: counted from 1
)

// Names of operations.
const (
	process     = "process"
	transaction = "transaction"
	poll        = "poll"
)

// maxDependencies bounds the names of dependencies that become attributes: a name that is generated per message must not become a
// time series.
const maxDependencies = 20

const other = "_OTHER"

type instruments struct {
	consumed metric.Int64Counter
	process  metric.Float64Histogram
	ended    metric.Int64Counter
	failed   metric.Int64Counter
	attempts metric.Int64Histogram
	duration metric.Float64Histogram
	batch    metric.Int64Histogram
	opened   metric.Int64Counter
	fired    metric.Int64Counter
	late     metric.Float64Histogram
}

// Boundaries of the conventions for durations.
var seconds = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

func newInstruments(m metric.Meter) (i instruments, err error) {
	var errs [10]error
	i.consumed, errs[0] = m.Int64Counter(messagingconv.ClientConsumedMessages{}.Name(),
		metric.WithUnit(messagingconv.ClientConsumedMessages{}.Unit()),
		metric.WithDescription(messagingconv.ClientConsumedMessages{}.Description()))
	i.process, errs[1] = m.Float64Histogram(messagingconv.ProcessDuration{}.Name(), seconds,
		metric.WithUnit(messagingconv.ProcessDuration{}.Unit()),
		metric.WithDescription(messagingconv.ProcessDuration{}.Description()))
	i.ended, errs[2] = m.Int64Counter("troupe.messages.ended", metric.WithUnit("{message}"),
		metric.WithDescription("Messages by how they ended."))
	i.failed, errs[3] = m.Int64Counter("troupe.attempts.failed", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that failed, by class."))
	i.attempts, errs[4] = m.Int64Histogram("troupe.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts of messages that took effect or became dead letters."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 5, 8, 13, 21))
	i.duration, errs[5] = m.Float64Histogram("troupe.transaction.duration", seconds, metric.WithUnit("s"),
		metric.WithDescription("Duration of handlers' transactions."))
	i.batch, errs[6] = m.Int64Histogram("troupe.transaction.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages in handlers' transactions."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))
	i.opened, errs[7] = m.Int64Counter("troupe.breaker.opened", metric.WithUnit("{opening}"),
		metric.WithDescription("Times that a partition began to wait for something that was away."))
	i.fired, errs[8] = m.Int64Counter("troupe.deadlines.fired", metric.WithUnit("{deadline}"),
		metric.WithDescription("Deadlines that were due and became messages."))
	i.late, errs[9] = m.Float64Histogram("troupe.deadlines.lateness", seconds, metric.WithUnit("s"),
		metric.WithDescription("Time from when a deadline was due until it became a message: of deadlines that fired together, the longest."))
	return i, errors.Join(errs[:]...)
}

// label holds all attributes of a measurement. It is a map key: sets are made once.
type label struct {
	group, topic         string
	partition            int32 // -1: none
	operation, kind      string
	end, from, handler   string
	class, dependency    string
	committed, committal bool // committal: committed is an attribute
}

// with returns the attributes of l.
func (t *Telemetry) with(l label) metric.MeasurementOption {
	if known, ok := t.sets.Load(l); ok {
		return known.(metric.MeasurementOption)
	}
	all := []attribute.KeyValue{semconv.MessagingSystemKafka, semconv.MessagingConsumerGroupName(l.group)}
	text := func(key attribute.Key, value string) {
		if value != "" {
			all = append(all, key.String(value))
		}
	}
	text(semconv.MessagingDestinationNameKey, l.topic)
	text(semconv.MessagingOperationNameKey, l.operation)
	text(semconv.MessagingOperationTypeKey, l.kind)
	text(keyResult, l.end)
	text(keySource, l.from)
	text(keyHandler, l.handler)
	text(semconv.ErrorTypeKey, l.class)
	text(keyDependency, l.dependency)
	if l.partition >= 0 {
		all = append(all, semconv.MessagingDestinationPartitionID(strconv.Itoa(int(l.partition))))
	}
	if l.committal {
		all = append(all, keyCommitted.Bool(l.committed))
	}
	made, _ := t.sets.LoadOrStore(l, metric.WithAttributeSet(attribute.NewSet(all...)))
	return made.(metric.MeasurementOption)
}

func (o *observer) fetched(topic string, partition int32, messages int) {
	l := label{group: o.group, topic: topic, partition: partition, operation: poll, kind: "receive"}
	o.instruments.consumed.Add(context.Background(), int64(messages), o.with(l))
}

// processed measures a run of a handler.
func (o *observer) processed(ctx context.Context, d participant.Delivery, took time.Duration) {
	l := label{
		group: o.group, topic: d.Message.Topic, partition: -1, operation: process, kind: process,
		handler: d.Handler, class: errorType(d),
	}
	o.instruments.process.Record(ctx, took.Seconds(), o.with(l))
}

// errorType returns the class, or _OTHER for a failure that says nothing about the message: a lost race, an unavailable
// dependency.
func errorType(d participant.Delivery) string {
	if d.Err != nil && d.Class == "" {
		return other
	}
	return string(d.Class)
}

func (o *observer) committed(d participant.Delivery) {
	ctx := context.Background()
	end := string(d.Outcome)
	if end == "" {
		end = "handled"
	}
	l := label{
		group: o.group, topic: d.Message.Topic, partition: -1, handler: d.Handler, class: string(d.Class),
		end: end, from: from(d.Held),
	}
	o.instruments.ended.Add(ctx, 1, o.with(l))
	if d.Class != "" {
		o.failed(d)
	}
	l = label{group: o.group, topic: d.Message.Topic, partition: -1, handler: d.Handler}
	o.instruments.attempts.Record(ctx, int64(d.Attempt), o.with(l))
}

func (o *observer) failed(d participant.Delivery) {
	l := label{group: o.group, topic: d.Message.Topic, partition: -1, handler: d.Handler, class: string(d.Class)}
	o.instruments.failed.Add(context.Background(), 1, o.with(l))
}

func (o *observer) held(d participant.Delivery) {
	l := label{
		group: o.group, topic: d.Message.Topic, partition: -1, handler: d.Handler, class: string(d.Class),
		end: "held", from: from(false),
	}
	o.instruments.ended.Add(context.Background(), 1, o.with(l))
}

func (o *observer) passed(p participant.Passed) {
	l := label{group: o.group, topic: p.Topic, partition: -1, end: p.Reason, from: from(p.Held)}
	o.instruments.ended.Add(context.Background(), 1, o.with(l))
}

func from(held bool) string {
	if held {
		return "held"
	}
	return "topic"
}

func (o *observer) breaker(b participant.Breaker) {
	if b.Err == nil {
		return
	}
	l := label{group: o.group, topic: b.Topic, partition: b.Partition, dependency: o.dependency(b.What)}
	o.instruments.opened.Add(context.Background(), 1, o.with(l))
}

func (o *observer) fired(f participant.Fired) {
	with := o.with(label{group: o.group, partition: -1})
	o.instruments.fired.Add(context.Background(), int64(f.Deadlines), with)
	o.instruments.late.Record(context.Background(), f.Lag.Seconds(), with)
}

// dependency returns name, or _OTHER once there are too many.
func (t *Telemetry) dependency(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dependencies[name] {
		if len(t.dependencies) >= maxDependencies {
			return other
		}
		t.dependencies[name] = true
	}
	return name
}
