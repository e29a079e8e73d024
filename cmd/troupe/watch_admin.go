package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/flow/telemetry"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/metrics"
)

// behindLimit bounds the time without an evaluation in which a watcher is still ready.
const behindLimit = time.Minute

// A watching is a watcher with its HTTP endpoints.
type watching struct {
	*watch.Watcher
	listener net.Listener // nil: no endpoints
	handler  http.Handler
}

// watcher validates the configuration and listens on the admin address.
func (f *watchFlags) watcher(cfg watch.Config) (*watching, error) {
	if f.admin == "" {
		w, err := watch.New(cfg)
		return &watching{Watcher: w}, err
	}
	_, meters, page, err := metrics.New("troupe-watch", nil)
	if err != nil {
		return nil, err
	}
	m, err := flows.New(flows.Config{Meters: meters})
	if err != nil {
		return nil, err
	}
	w, err := watch.New(m.Instrument(cfg))
	if err != nil {
		return nil, err
	}
	if err := m.Observe(w); err != nil {
		return nil, err
	}
	if err := address.CheckListen(f.admin); err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	listener, err := net.Listen("tcp", f.admin)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w: want host:port that is free, such as 127.0.0.1:8087", err)
	}
	cfg.Log.Info().Stringer("admin", listener.Addr()).Msg("serving")
	return &watching{w, listener, watchEndpoints(w, door.Here(listener.Addr(), page))}, nil
}

// watchEndpoints returns the endpoints. They contain only counts and kinds, no key and no id.
func watchEndpoints(w *watch.Watcher, page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(out http.ResponseWriter, _ *http.Request) { _, _ = out.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(out http.ResponseWriter, _ *http.Request) {
		if behind := w.Stats().Behind; behind > behindLimit {
			why := fmt.Sprintf("nothing was judged for %s: the watcher catches up, or a server is away (see its log)", behind.Round(time.Second))
			http.Error(out, why, http.StatusServiceUnavailable)
			return
		}
		_, _ = out.Write([]byte("ok\n"))
	})
	mux.Handle("GET /metrics", page)
	return mux
}

// Run watches and answers until ctx ends.
func (w *watching) Run(ctx context.Context) error {
	if w.listener == nil {
		return w.Watcher.Run(ctx)
	}
	server := &http.Server{
		Handler: w.handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	group, ctx := errgroup.WithContext(ctx)
	ctx, end := context.WithCancel(ctx)
	group.Go(func() error {
		if err := server.Serve(door.Limit(w.listener)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("--admin: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	group.Go(func() error {
		defer end()
		return w.Watcher.Run(ctx)
	})
	return group.Wait()
}
