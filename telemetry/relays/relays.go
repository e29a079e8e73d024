// Package relays reports the rows that a relay publishes to OpenTelemetry, as spans in the traces of their writers. It needs the API
// only; the program chooses the SDK and the exporters. Package telemetry reports the participants.
//
//	r, err := relay.New(relays.Instrument(relay.Config{…}, nil))
//
// A row has spans if its headers contain a sampled trace context, which a service writes with outbox.Config.Trace. Both spans are
// children of the writer's span:
//
//	outbox <topic>   internal   from the row's created_at until the relay sends it: the time in the outbox, failed tries included
//	send <topic>     producer   until the broker has acknowledged it, or its Kafka transaction is committed: the time in the broker
//
// Attributes are the topic, the partition, the offset, the message's id and the number of the try, under the names of the semantic
// conventions for messaging (v1.43.0, in development); never a key, payload or other header. A row that an operator retries
// has the trace of its writer. A replay makes no spans.
package relays

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/relay"
)

const (
	scope = "github.com/troupe-go/troupe/telemetry/relays"

	wait = "outbox"
	send = "send"

	keyAttempt = attribute.Key("troupe.attempt")
)

var w3c propagation.TraceContext

// Instrument returns cfg with a hook that makes the spans, in addition to its own hook. Default of tracers: otel.GetTracerProvider().
func Instrument(cfg relay.Config, tracers trace.TracerProvider) relay.Config {
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	o := observer{tracers.Tracer(scope)}
	first := cfg.Hooks.Traced
	cfg.Hooks.Traced = func(row relay.Traced) {
		if first != nil {
			first(row)
		}
		o.published(row)
	}
	return cfg
}

type observer struct{ tracer trace.Tracer }

// published makes the spans of a row. The database's clock may differ from the relay's: a row that seems to be written after it was
// sent has waited for no time.
func (o observer) published(row relay.Traced) {
	ctx := w3c.Extract(context.Background(), propagation.MapCarrier{ce.HeaderTraceParent: row.TraceParent, ce.HeaderTraceState: row.TraceState})
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKafka, semconv.MessagingDestinationName(row.Topic), semconv.MessagingMessageID(row.ID), keyAttempt.Int(row.Attempts + 1),
	}
	if !row.Written.IsZero() && row.Written.Before(row.Sent) {
		o.span(ctx, wait, row.Topic, trace.SpanKindInternal, row.Written, row.Sent, attributes)
	}
	attributes = append(attributes, semconv.MessagingOperationName(send), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationPartitionID(strconv.Itoa(int(row.Partition))), semconv.MessagingKafkaOffset(int(row.Offset)))
	o.span(ctx, send, row.Topic, trace.SpanKindProducer, row.Sent, row.Published, attributes)
}

func (o observer) span(ctx context.Context, name, topic string, kind trace.SpanKind, start, end time.Time, attributes []attribute.KeyValue) {
	_, span := o.tracer.Start(ctx, name+" "+topic, trace.WithSpanKind(kind), trace.WithTimestamp(start), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(end))
}
