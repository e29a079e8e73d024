package sidecar

import (
	"context"
	"net/http"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
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
		if err := a.parts.Read(text); err != nil {
			return usagef("%s (from %s): %s: %w", sagaFiles.name, v.from[sagaFiles.name], file, err)
		}
		a.definitions++
	}
	if a.definitions > 0 {
		a.database.MaxConns += waitingConns
	}
	return nil
}

// serveSagas adds /sagas to mux.
func (a *ambassadorPlan) serveSagas(ctx context.Context, pool *pgxpool.Pool, mux *http.ServeMux) error {
	h, err := a.parts.Handler(ctx, pool, a.outboxToken, a.participant.Log)
	if err != nil {
		return err
	}
	mux.Handle("/sagas/", a.entrance(h))
	return nil
}
