package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/console"
	"github.com/troupe-go/troupe/internal/retention"
)

// age copies the one saga of the database, with its log, to sagas that started 120 to 91 days ago.
const age = `
WITH old AS (
  INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, updated_at, ended_at)
  SELECT 'order/old-' || i, saga, 'old-' || i, hop, consumer_group, definition, version, status, steps, state, at, at, at + interval '2 seconds'
  FROM troupe.sagas
  CROSS JOIN generate_series(1, $1) AS i
  CROSS JOIN LATERAL (SELECT now() - interval '120 days' + interval '29 days' * (i / $1::float8) AS at) AS t
  WHERE ended_at IS NOT NULL
  RETURNING id, started_at)
INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments, recorded_at)
SELECT old.id, e.version, old.started_at, e.kind, e.event, e.moments, old.started_at
FROM old
CROSS JOIN troupe.saga_events AS e`

// retention measures sagas and pages alone, and again while ended sagas are removed.
func (s *stage) retention(ctx context.Context) (_ string, err error) {
	y, err := s.start(ctx, "local")
	defer func() { err = errors.Join(err, y.Close()) }()
	if err != nil {
		return "", err
	}
	exec := func(sql string, args ...any) error {
		_, err := y.order.Exec(ctx, sql, args...)
		return err
	}
	if err := exec("UPDATE troupe.retention SET keep = NULL"); err != nil { // the participants remove records, too
		return "", err
	}
	if err := y.runSaga(ctx, nextKey()); err != nil {
		return "", err
	}
	if err := exec(age, s.ended); err != nil {
		return "", err
	}
	if err := exec("VACUUM ANALYZE"); err != nil {
		return "", err
	}
	if _, err := y.atRate(ctx, s.warm); err != nil {
		return "", err
	}
	began := time.Now()
	pages, err := y.besidePages(ctx, fmt.Sprintf("retention, at %.0f/s", s.beside), func() bool { return time.Since(began) < 2*s.time })
	if err != nil {
		return "", err
	}

	if err := exec("UPDATE troupe.retention SET keep = '90 days'"); err != nil {
		return "", err
	}
	var removed atomic.Bool
	var took time.Duration
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer removed.Store(true)
		began := time.Now()
		defer func() { took = time.Since(began) }()
		return y.removeOld(within)
	})
	meanwhile, err := y.besidePages(ctx, "retention, meanwhile", func() bool { return !removed.Load() })
	if err = errors.Join(err, group.Wait()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d sagas removed in %s, %.0f/s; pages p50 and p99 %s, meanwhile %s", s.ended, took.Round(time.Second),
		float64(s.ended)/took.Seconds(), pages, meanwhile), y.check(ctx)
}

// removeOld removes ended sagas until none is left that is older than the retention. The participants of the system do so, too.
func (y *system) removeOld(ctx context.Context) error {
	records := retention.NewRecords(y.order)
	for left := true; left; {
		if _, err := records.Remove(ctx); err != nil {
			return err
		}
		if err := y.order.QueryRow(ctx, "SELECT EXISTS (SELECT FROM troupe.sagas WHERE started_at < now() - interval '90 days')").Scan(&left); err != nil {
			return err
		}
		if left {
			if err := harness.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	return nil
}

// besidePages runs sagas at a steady rate as long as a condition holds, and requests pages of the console meanwhile, ten a second. It
// shows the sagas' times and returns the pages'.
func (y *system) besidePages(ctx context.Context, name string, holds func() bool) (pages string, err error) {
	c, err := console.New(ctx, console.Config{
		Databases: []console.Database{{Name: "order", Pool: y.order}}, Token: "a token of some length", Log: zerolog.Nop(),
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	server := httptest.NewServer(c)
	defer server.Close()
	var times []time.Duration
	var failed error
	var requests sync.WaitGroup
	requests.Go(func() {
		addresses := []string{"/", "/sagas", "/sagas?db=order&status=completed", "/sagas?db=order&status=completed&oldest=1"}
		for i := 0; holds() && failed == nil; i++ {
			began := time.Now()
			failed = get(ctx, server, addresses[i%len(addresses)])
			times = append(times, time.Since(began))
			time.Sleep(100 * time.Millisecond)
		}
	})
	r, err := y.atRateWhile(ctx, y.stage.beside, holds)
	requests.Wait()
	table.Show(name, r)
	slices.Sort(times)
	ms := func(p float64) float64 { return harness.Percentile(times, p).Seconds() * 1000 }
	return fmt.Sprintf("%.1f and %.1f ms", ms(0.5), ms(0.99)), errors.Join(err, failed)
}

func get(ctx context.Context, server *httptest.Server, address string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+address, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/html")
	a, err := server.Client().Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", address, a.Status, text)
	}
	return err
}
