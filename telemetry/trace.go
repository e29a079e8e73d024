package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/participant"
)

var w3c propagation.TraceContext

// Trace returns the context of ctx's span, as W3C's traceparent and tracestate; "" if ctx has no span. It fits the field Trace of
// outbox.Config and participant.Config.
func Trace(ctx context.Context) (traceparent, tracestate string) {
	c := propagation.MapCarrier{}
	w3c.Inject(ctx, c)
	return c[ce.HeaderTraceParent], c[ce.HeaderTraceState]
}

// creation returns the context of the span that wrote m.
func creation(m envelope.Message) trace.SpanContext {
	if m.TraceParent == "" {
		return trace.SpanContext{}
	}
	c := propagation.MapCarrier{ce.HeaderTraceParent: m.TraceParent, ce.HeaderTraceState: m.TraceState}
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), c))
}

type (
	transactionHook = func(context.Context, []participant.Delivery) (context.Context, func(error))
	handlerHook     = func(context.Context, participant.Delivery) (context.Context, func(participant.Delivery))
)

// transaction measures each transaction and makes a span of a batch.
func (o *observer) transaction(first transactionHook) transactionHook {
	return derived(first, func(ctx context.Context, ds []participant.Delivery) (context.Context, func(error)) {
		began := time.Now().Add(-ds[0].Took)
		end := func(error) {}
		if len(ds) > 1 {
			ctx, end = o.batch(ctx, ds, began)
		}
		return ctx, func(err error) {
			end(err)
			with := o.with(label{group: o.group, topic: ds[0].Message.Topic, partition: -1, committal: true, committed: err == nil})
			o.instruments.duration.Record(ctx, time.Since(began).Seconds(), with)
			o.instruments.batch.Record(ctx, int64(len(ds)), with)
		}
	})
}

// batch begins the span of a transaction of several messages.
func (o *observer) batch(ctx context.Context, ds []participant.Delivery, began time.Time) (context.Context, func(error)) {
	links := make([]trace.Link, 0, len(ds))
	for _, d := range ds {
		if from := creation(d.Message); from.IsValid() {
			links = append(links, trace.Link{SpanContext: from})
		}
	}
	attributes := append(o.place(ds[0], transaction), semconv.MessagingBatchMessageCount(len(ds)))
	ctx, span := o.tracer.Start(ctx, transaction+" "+ds[0].Message.Topic, trace.WithNewRoot(), trace.WithTimestamp(began),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...), trace.WithAttributes(attributes...))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "rolled back: its messages run alone")
			span.SetAttributes(semconv.ErrorTypeKey.String(other))
		}
		span.End()
	}
}

// handler measures each run of a handler and makes a span of it.
func (o *observer) handler(first handlerHook) handlerHook {
	return derived(first, func(ctx context.Context, d participant.Delivery) (context.Context, func(participant.Delivery)) {
		began := time.Now()
		attributes := append(o.place(d, process), keyHandler.String(d.Handler), keyAttempt.Int(d.Attempt),
			semconv.MessagingMessageID(d.Message.ID), semconv.MessagingKafkaOffset(int(d.Offset)))
		if d.Message.CorrelationID != "" {
			attributes = append(attributes, semconv.MessagingMessageConversationID(d.Message.CorrelationID))
		}
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...)}
		if from := creation(d.Message); from.IsValid() {
			if batch := trace.SpanContextFromContext(ctx); batch.IsValid() {
				options = append(options, trace.WithLinks(trace.Link{SpanContext: batch}))
			}
			ctx = trace.ContextWithRemoteSpanContext(ctx, from)
		}
		ctx, span := o.tracer.Start(ctx, process+" "+d.Message.Topic, options...)
		return ctx, func(d participant.Delivery) {
			if d.Err != nil {
				span.SetStatus(codes.Error, d.Err.Error())
				span.SetAttributes(semconv.ErrorTypeKey.String(errorType(d)))
			}
			if d.Outcome != envelope.None {
				span.SetAttributes(keyResult.String(string(d.Outcome)))
			}
			span.End()
			o.processed(ctx, d, time.Since(began))
		}
	})
}

// place returns the attributes that all spans have.
func (o *observer) place(d participant.Delivery, operation string) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKafka, semconv.MessagingOperationName(operation), semconv.MessagingOperationTypeProcess,
		semconv.MessagingConsumerGroupName(o.group), semconv.MessagingDestinationName(d.Message.Topic),
		semconv.MessagingDestinationPartitionID(strconv.Itoa(int(d.Partition))),
	}
}
