package sagas_test

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/telemetry/sagas"
	"github.com/troupe-go/troupe/topics"
)

// A coordinator whose participant is measured by package telemetry, and whose sagas by this one.
func Example() {
	otel.SetMeterProvider(sdkmetric.NewMeterProvider()) // with a reader: Prometheus, OTLP
	_ = func(ctx context.Context, pool *pgxpool.Pool, order *saga.Definition) error {
		t, err := telemetry.New(telemetry.Config{})
		if err != nil {
			return err
		}
		p, err := participant.New(t.Instrument(participant.Config{
			Pool: pool, Brokers: []string{"127.0.0.1:9092"}, Hop: topics.MustHop("order", "order"),
		}))
		if err != nil {
			return err
		}
		m, err := sagas.New(sagas.Config{})
		if err != nil {
			return err
		}
		c, err := coordinator.New(ctx, m.Instrument(coordinator.Config{
			Participant: p, Pool: pool, Definitions: []*saga.Definition{order},
		}))
		if err != nil {
			return err
		}
		if err := t.Observe(p); err != nil {
			return err
		}
		if err := m.Observe(c); err != nil {
			return err
		}
		return p.Run(ctx)
	}
	// Output:
}
