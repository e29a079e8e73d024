package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/metrics"
	"github.com/troupe-go/troupe/internal/traces"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/schemas"
)

// When many messages wait, they share a transaction, its round trips and its flush to disk. A higher concurrency would only make
// the batches smaller; four is one for each partition, as needed by messages that are processed one by one after a crash.
const (
	batch       = 100
	concurrency = 4
)

// A Hop is the part of a service that differs between the four services.
type Hop struct {
	Name   string // of the hop and of the service
	Schema string // the statements that create the service's tables if they do not exist
	// Reactions is the service's reactions.json, for the flow without a coordinator.
	Reactions []byte
	// Handle registers the handlers of commands, for the flow with a coordinator, and React the handlers of other hops' events, for
	// the flow without one.
	Handle func(*participant.Participant)
	React  func(*flow.Service)
	// API, instead of both, registers the hop's handlers and returns its HTTP API. If it returns an error, it has registered none,
	// and is called again.
	API func(ctx context.Context, with Parts) (http.Handler, error)
}

// Parts holds the dependencies of a hop's API and handlers.
type Parts struct {
	Pool        *pgxpool.Pool
	Participant *participant.Participant
	Flow        *flow.Service // set in a choreography; else nil
	Codec       *schemas.Codec
	Meters      metric.MeterProvider
	Tracers     trace.TracerProvider
	Alert       func(alert.Incident) // does nothing if there is no webhook
}

// Run serves HTTP at once, waits until database and registry answer, migrates the tables, and works until ctx ends: then it
// finishes the work in progress and returns nil. The participant waits for the broker.
func (h Hop) Run(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults(h.Name)
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	cfg.Log.Info().Stringer("address", listener.Addr()).Stringer("hop", cfg.Hop(h.Name)).Msg("serving")

	front := &front{listens: listener.Addr()}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(running, listener, front) })
	group.Go(func() error { return h.work(running, cfg, front) })
	err = group.Wait()
	if err != nil && !(ctx.Err() != nil && errors.Is(err, ctx.Err())) {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	return nil
}

func (h Hop) work(ctx context.Context, cfg Config, front *front) error {
	pool, err := openDatabase(ctx, cfg, h.Schema)
	if err != nil {
		return err
	}
	defer pool.Close()
	codec, err := openCodec(ctx, cfg)
	if err != nil {
		return err
	}
	hooks, alerts, closeAlerts, err := openAlerts(cfg.alert(), h.Name)
	if err != nil {
		return err
	}
	defer func() {
		if err := closeAlerts(); err != nil {
			cfg.Log.Error().Err(err).Msg("ended")
		}
	}()
	tracers, endTraces, err := traces.Open(ctx, cfg.Traces, h.Name, cfg.Log)
	if err != nil {
		return err
	}
	defer endTraces()
	t, meters, page, err := metrics.New(h.Name, tracers)
	if err != nil {
		return err
	}
	p, err := participant.New(t.Instrument(participant.Config{
		Pool: pool, Brokers: cfg.Brokers, Hop: cfg.Hop(h.Name), Codec: codec, Source: h.Name,
		Batch: batch, Concurrency: concurrency, Partitions: cfg.Partitions, Kafka: cfg.Kafka, Hooks: hooks, Log: cfg.Log,
	}))
	if err != nil {
		return err
	}
	if err := t.Observe(p); err != nil {
		return err
	}
	reacting, err := h.reacting(cfg, p)
	if err != nil {
		return err
	}
	var api http.Handler
	err = await(ctx, cfg.Log, "database", func(ctx context.Context) (err error) {
		api, err = h.register(ctx, Parts{pool, p, reacting, codec, meters, tracers, alerts})
		return err
	})
	if err != nil {
		return err
	}
	front.open(api, p.Ready, page)
	return p.Run(ctx)
}

func (h Hop) register(ctx context.Context, with Parts) (api http.Handler, err error) {
	switch {
	case h.API != nil:
		return h.API(ctx, with)
	case with.Flow != nil:
		h.React(with.Flow)
	default:
		h.Handle(with.Participant)
	}
	return nil, nil
}

// reacting returns the service's reactions in a choreography, validated against its declaration. It returns nil in an
// orchestration.
func (h Hop) reacting(cfg Config, p *participant.Participant) (*flow.Service, error) {
	if cfg.Style != Choreography {
		return nil, nil
	}
	declared, err := Declared(h.Reactions, cfg.Flow)
	if err != nil {
		return nil, fmt.Errorf("reactions.json: %w", err)
	}
	return flow.New(flow.Config{Participant: p, Declared: declared, Log: cfg.Log})
}
