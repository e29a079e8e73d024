package telemetry_test

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/telemetry"
)

// A program that embeds the relay gives it RowPublished as a hook. Here the hook is called for one row, in place of a relay.
func ExampleTelemetry_RowPublished() {
	spans := tracetest.NewInMemoryExporter()
	t, err := telemetry.New(telemetry.Config{Tracers: trace.NewTracerProvider(trace.WithSyncer(spans))})
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := relay.Config{Hooks: relay.Hooks{Traced: t.RowPublished}}

	written := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cfg.Hooks.Traced(outbox.PublishedRow{
		Topic: "order.payment.commands", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Written: written, Sent: written.Add(2 * time.Millisecond), Published: written.Add(5 * time.Millisecond),
	})
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, span.EndTime.Sub(span.StartTime), span.Parent.SpanID())
	}
	// Output:
	// outbox order.payment.commands 2ms b7ad6b7169203331
	// send order.payment.commands 3ms b7ad6b7169203331
}
