package sagahttp

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/metrics"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/telemetry/sagas"
)

// A Server has the parts of one ambassador. It implements ambassador.Parts.
type Server struct {
	meters      metric.MeterProvider
	definitions []*saga.Definition
	handler     *Sagas // nil: /sagas is not served
}

// NewServer returns a Server without definitions.
func NewServer() ambassador.Parts { return &Server{} }

// Metrics implements ambassador.Parts.
func (s *Server) Metrics(service string) (ambassador.Instruments, http.Handler, error) {
	t, meters, page, err := metrics.New(service, nil)
	s.meters = meters
	return t, page, err
}

// Read implements ambassador.Parts.
func (s *Server) Read(text []byte) error {
	d, err := saga.Parse(text)
	if err == nil {
		s.definitions = append(s.definitions, d)
	}
	return err
}

// Handler implements ambassador.Parts.
func (s *Server) Handler(ctx context.Context, pool *pgxpool.Pool, token string, log zerolog.Logger) (http.Handler, error) {
	h, err := New(ctx, Config{Pool: pool, Definitions: s.definitions, Token: token, Log: log})
	s.handler = h
	return h, err
}

// Coordinate implements ambassador.Parts.
func (s *Server) Coordinate(ctx context.Context, c ambassador.Coordination) error {
	measured, err := sagas.New(sagas.Config{Meters: s.meters})
	if err != nil {
		return err
	}
	cfg := coordinator.Config{Participant: c.Participant, Pool: c.Pool, Definitions: s.definitions, Log: c.Log}
	if c.Schemas != nil {
		cfg.Schemas = c.Schemas
	}
	if c.Alerts != nil {
		cfg.Parked = func(st saga.State, reason string) {
			c.Alerts.Notify(alert.Incident{Kind: "parked saga", Where: st.Saga, Subject: c.Source, Key: st.Key, ID: st.ID(), Text: reason})
		}
	}
	made, err := coordinator.New(ctx, measured.Instrument(cfg))
	if err != nil {
		return err
	}
	if s.handler != nil {
		s.handler.Coordinate(made)
	}
	return measured.Observe(made)
}
