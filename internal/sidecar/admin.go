package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/relay"
)

func newAdmin(r *relay.Relay, stats *statistics, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, health{OK: true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		h := health{OK: true, Role: r.Status().Role}
		code := http.StatusOK
		if err := r.Ready(); err != nil {
			h.OK, h.Reason, code = false, err.Error(), http.StatusServiceUnavailable
		}
		answer(w, code, h)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, req *http.Request) {
		s := runStatus{Relay: r.Status(), Ready: true}
		if err := r.Ready(); err != nil {
			s.Ready, s.Reason = false, err.Error()
		}
		if rows, err := stats.read(req.Context()); err != nil {
			s.OutboxError = err.Error()
		} else {
			s.Outbox = rowsOf(rows)
		}
		answer(w, http.StatusOK, s)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

type health struct {
	OK     bool       `json:"ok"`
	Role   relay.Role `json:"role,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

type runStatus struct {
	Ready       bool         `json:"ready"`
	Reason      string       `json:"reason,omitempty"`
	Relay       relay.Status `json:"relay"`
	Outbox      *rowStatus   `json:"outbox,omitempty"`
	OutboxError string       `json:"outbox_error,omitempty"`
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // whoever asked has gone
}

// statistics are read when somebody asks, at most every statsFor.
type statistics struct {
	pool *pgxpool.Pool

	mu   sync.Mutex
	at   time.Time
	last outbox.Stats
	err  error
}

const (
	statsFor   = 2 * time.Second
	statsLimit = 2 * time.Second
)

func (s *statistics) read(ctx context.Context) (outbox.Stats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < statsFor {
		return s.last, s.err
	}
	ctx, cancel := context.WithTimeout(ctx, statsLimit)
	defer cancel()
	s.last, s.err = outbox.ReadStats(ctx, s.pool)
	s.at = time.Now()
	return s.last, s.err
}

type endpoints struct {
	server *http.Server
	ended  chan error
}

func serve(l net.Listener, handler http.Handler) *endpoints {
	e := &endpoints{
		server: &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second},
		ended:  make(chan error, 1),
	}
	go func() { e.ended <- e.server.Serve(l) }()
	return e
}

func (e *endpoints) stop(ctx context.Context) error {
	err := e.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = e.server.Close()
	}
	if ended := <-e.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
