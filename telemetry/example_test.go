package telemetry_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/topics"
)

// A service whose participant is measured and traced, and whose own writes to the outbox continue the trace of their context.
func Example() {
	otel.SetMeterProvider(sdkmetric.NewMeterProvider())  // with a reader: Prometheus, OTLP
	otel.SetTracerProvider(sdktrace.NewTracerProvider()) // with an exporter

	pool, err := pgxpool.New(context.Background(), "postgres://payment@127.0.0.1:5432/payment")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	t, err := telemetry.New(telemetry.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := participant.New(t.Instrument(participant.Config{
		Pool: pool, Brokers: []string{"127.0.0.1:9092"}, Hop: topics.MustHop("order", "payment"),
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := t.Observe(p); err != nil {
		fmt.Println(err)
		return
	}
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Charge]) (participant.Outcome, error) {
		return participant.Succeed(Charged{}), nil
	})
	_, err = outbox.New(outbox.Config{Source: "payment", Trace: telemetry.Trace})
	fmt.Println(err, p.Stats().Group)
	// Output: <nil> order.payment
}

// The trace context of a context without a span is empty.
func ExampleTrace() {
	fmt.Printf("%q\n", first(telemetry.Trace(context.Background())))
	// Output: ""
}

func first(traceparent, _ string) string { return traceparent }
