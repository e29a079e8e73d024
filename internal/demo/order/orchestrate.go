package order

import (
	"context"
	_ "embed"
	"net/http"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/telemetry/sagas"
)

const sagaName = "order"

//go:embed order.saga.json
var definition []byte

// orchestrate makes the service the coordinator of orders.
func orchestrate(ctx context.Context, cfg demo.Config, with demo.Parts) (http.Handler, error) {
	measured, err := sagas.New(sagas.Config{Meters: with.Meters})
	if err != nil {
		return nil, err
	}
	s, c, err := newOrchestrator(ctx, measured.Instrument(coordinator.Config{
		Participant: with.Participant, Pool: with.Pool, Schemas: with.Codec, Log: cfg.Log,
		Parked: func(s saga.State, reason string) {
			with.Alert(alert.Incident{Kind: "parked saga", Where: s.Saga, Subject: hop, Key: s.Key, ID: s.ID(), Text: reason})
		},
	}))
	if err != nil {
		return nil, err
	}
	s.spans = with.Tracers.Tracer(scope)
	return s.api(), measured.Observe(c)
}

// newOrchestrator makes cfg's participant the coordinator of orders. The coordinator's Run is not needed: no step awaits an event, so no
// event is stashed.
func newOrchestrator(ctx context.Context, cfg coordinator.Config) (*service, *coordinator.Coordinator, error) {
	d, err := saga.Parse(definition)
	if err != nil {
		return nil, nil, err
	}
	cfg.Definitions = []*saga.Definition{d}
	c, err := coordinator.New(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	begin := func(ctx context.Context, tx pgx.Tx, o Order) error {
		_, err := c.Start(ctx, tx, sagaName, o.data())
		return err
	}
	return &service{pool: cfg.Pool, begin: begin, spans: noop.Tracer{}, log: cfg.Log}, c, nil
}
