package ambassador

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/schemas"
)

// Parts are the parts of the program troupe ambassador that outbox-relay is not linked with, though both are in package sidecar: sagas
// with the language of their expressions, and metrics that know sagas. sagahttp.NewServer makes them.
type Parts interface {
	// Metrics makes the instruments of the service, and the page on which Prometheus reads all metrics. It is called first.
	Metrics(service string) (Instruments, http.Handler, error)
	// Read adds the definition of a saga.
	Read(text []byte) error
	// Handler returns the handler of /sagas. It answers its waiting requests when ctx ends.
	Handler(ctx context.Context, pool *pgxpool.Pool, token string, log zerolog.Logger) (http.Handler, error)
	// Coordinate makes the participant the coordinator of the sagas.
	Coordinate(ctx context.Context, c Coordination) error
}

// Instruments measure a participant: Instrument before it is made, Observe afterwards.
type Instruments interface {
	Instrument(participant.Config) participant.Config
	Observe(*participant.Participant) error
}

// Coordination has the values of the program that a coordinator of sagas needs.
type Coordination struct {
	Participant *participant.Participant
	Pool        *pgxpool.Pool
	Schemas     *schemas.Codec  // nil: payloads are JSON
	Alerts      *alert.Notifier // nil: no alerts of parked sagas
	Source      string          // of the alerts
	Log         zerolog.Logger
}
