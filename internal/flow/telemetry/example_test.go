package flows_test

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/telemetry"
	"github.com/troupe-go/troupe/internal/flow/watch"
)

// A watcher whose findings are counted.
func Example() {
	otel.SetMeterProvider(sdkmetric.NewMeterProvider()) // with a reader: Prometheus, OTLP
	_ = func(ctx context.Context, pool *pgxpool.Pool, services []flow.Declaration) error {
		m, err := flows.New(flows.Config{})
		if err != nil {
			return err
		}
		w, err := watch.New(m.Instrument(watch.Config{
			Pool: pool, Brokers: []string{"127.0.0.1:9092"}, Flow: "order", Declared: services,
		}))
		if err != nil {
			return err
		}
		if err := m.Observe(w); err != nil {
			return err
		}
		return w.Run(ctx)
	}
	// Output:
}
