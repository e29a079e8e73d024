package flow

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/retry"
)

//go:embed sql/miss.sql
var missSQL string

// Each member polls the database for overdue expectations every overdueEvery, also while the broker is away.
const (
	overdueEvery = time.Second
	overdueLimit = 500              // rows of one statement
	namedKeys    = 20               // keys that one log line or one alert's text names; it counts the others
	flowLimit    = 10 * time.Second // time limit of a statement
	warnEvery    = 30 * time.Second // shortest time between two lines on failures
)

var flowRetry = retry.Policy{Initial: overdueEvery, Cap: 30 * time.Second}

// watchExpectations makes the participant run the loops that record overdue expectations and post their alerts.
func (s *Service) watchExpectations() {
	due := make(chan struct{}, 1)
	s.p.Extension().Alongside(func(ctx context.Context) {
		s.repeat(ctx, "record overdue expectations", nil, func(ctx context.Context) (time.Duration, error) {
			n, err := s.recordOverdue(ctx)
			if n > 0 {
				select {
				case due <- struct{}{}:
				default:
				}
			}
			if n == overdueLimit {
				return 0, err
			}
			return overdueEvery, err
		})
	})
	if s.cfg.AlertURL != "" {
		s.p.Extension().Alongside(func(ctx context.Context) { s.postAlerts(ctx, due) })
	}
}

// repeat calls pass until ctx ends. Between two calls it waits for the time that pass returned, or until wake receives a value.
// After an error it waits longer, ignores wake, and logs at most one line in warnEvery. what names the work in the log.
func (s *Service) repeat(ctx context.Context, what string, wake <-chan struct{}, pass func(context.Context) (time.Duration, error)) {
	var warned time.Time
	failures, since := 0, 0
	for {
		wait, err := pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			wait = max(wait, flowRetry.Wait(failures))
			if since++; time.Since(warned) >= warnEvery {
				s.cfg.Log.Warn().Err(err).Int("failures", since).Msg(what + ": failed, and is tried again")
				warned, since = time.Now(), 0
			}
		default:
			if !warned.IsZero() {
				s.cfg.Log.Info().Msg(what + ": works again")
			}
			failures, since, warned = 0, 0, time.Time{}
		}
		timer := time.NewTimer(wait)
		awaited := wake
		if err != nil {
			awaited = nil // a new alert does not end the wait
		}
		select {
		case <-ctx.Done():
		case <-awaited:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// recordOverdue records expectations whose time is over, logs them, and returns their number, at most overdueLimit. It includes
// expectations that the declaration does not list any more: their events are missing, too.
func (s *Service) recordOverdue(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, flowLimit)
	defer cancel()
	rows, _ := s.p.Extension().Pool().Query(ctx, missSQL, pg.Args{
		"group": s.p.Group(), "alerts": s.cfg.AlertURL != "", "limit": overdueLimit,
	})
	keys := make(map[string][]string) // by the expectation's name
	var name, key string
	tag, err := pgx.ForEachRow(rows, []any{&name, &key}, func() error {
		keys[name] = append(keys[name], key)
		return nil
	})
	if err != nil {
		return 0, err
	}
	for name, of := range keys {
		s.cfg.Log.Warn().Str("expectation", name).Int("missing", len(of)).Strs("keys", of[:min(len(of), namedKeys)]).
			Msg("expected events have not come in time")
	}
	return int(tag.RowsAffected()), nil
}
