package sidecar

import (
	"context"
	"net/http"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/sagahttp"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/telemetry"
)

// waitingConns is the number of connections for the requests to /sagas, in addition to the participant's.
const waitingConns = 4

// readSagas reads the files with the definitions.
func (a *ambassadorPlan) readSagas(v values) error {
	for file := range strings.SplitSeq(v.text[sagaFiles.name], ",") {
		if file = strings.TrimSpace(file); file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return usagef("%s (from %s): %w", sagaFiles.name, v.from[sagaFiles.name], err)
		}
		d, err := saga.Parse(text)
		if err != nil {
			return usagef("%s (from %s): %s: %w", sagaFiles.name, v.from[sagaFiles.name], file, err)
		}
		a.sagas = append(a.sagas, d)
	}
	if len(a.sagas) > 0 {
		a.database.MaxConns += waitingConns
	}
	return nil
}

// serveSagas adds /sagas to mux.
func (a *ambassadorPlan) serveSagas(ctx context.Context, pool *pgxpool.Pool, mux *http.ServeMux) error {
	h, err := sagahttp.New(ctx, sagahttp.Config{Pool: pool, Definitions: a.sagas, Token: a.outboxToken, Log: a.participant.Log})
	if err != nil {
		return err
	}
	a.overHTTP = h
	if a.outboxToken == "" {
		mux.Handle("/sagas/", here(h))
		return nil
	}
	mux.Handle("/sagas/", h)
	return nil
}

// coordinate makes p the coordinator of the sagas. alerts may be nil.
func (a *ambassadorPlan) coordinate(ctx context.Context, p *participant.Participant, meters metric.MeterProvider, alerts *alert.Notifier) error {
	measured, err := telemetry.NewSagas(telemetry.Config{Meters: meters})
	if err != nil {
		return err
	}
	cfg := coordinator.Config{Participant: p, Pool: a.participant.Pool, Definitions: a.sagas, Log: a.participant.Log}
	if a.service.Schemas != nil {
		cfg.Schemas = a.service.Schemas
	}
	if alerts != nil {
		cfg.Parked = func(s saga.State, reason string) {
			alerts.Notify(alert.Incident{Kind: "parked saga", Where: s.Saga, Subject: a.alert.Source, Key: s.Key, ID: s.ID(), Text: reason})
		}
	}
	c, err := coordinator.New(ctx, measured.Instrument(cfg))
	if err != nil {
		return err
	}
	if a.overHTTP != nil {
		a.overHTTP.Coordinate(c)
	}
	return measured.Observe(c)
}
