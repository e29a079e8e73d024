package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/outbox"
)

const (
	spanOutbox = "outbox"
	spanSend   = "send"
)

// RowPublished makes the spans of a row that a relay has published. Set relay.Hooks.Traced to it. The database's clock may
// differ from the relay's: a row that seems to be written after it was sent has no span of the time in the outbox.
func (t *Telemetry) RowPublished(row outbox.PublishedRow) {
	ctx := w3c.Extract(context.Background(), propagation.MapCarrier{ce.HeaderTraceParent: row.TraceParent, ce.HeaderTraceState: row.TraceState})
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKafka, semconv.MessagingDestinationName(row.Topic), semconv.MessagingMessageID(row.ID), keyAttempt.Int(row.Attempts + 1),
	}
	if !row.Written.IsZero() && row.Written.Before(row.Sent) {
		t.rowSpan(ctx, spanOutbox, row.Topic, trace.SpanKindInternal, row.Written, row.Sent, attributes)
	}
	attributes = append(attributes, semconv.MessagingOperationName(spanSend), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationPartitionID(strconv.Itoa(int(row.Partition))), semconv.MessagingKafkaOffset(int(row.Offset)))
	t.rowSpan(ctx, spanSend, row.Topic, trace.SpanKindProducer, row.Sent, row.Published, attributes)
}

func (t *Telemetry) rowSpan(ctx context.Context, name, topic string, kind trace.SpanKind, start, end time.Time, attributes []attribute.KeyValue) {
	_, span := t.tracer.Start(ctx, name+" "+topic, trace.WithSpanKind(kind), trace.WithTimestamp(start), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(end))
}
