package demo

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/internal/door"
)

// Limits of the HTTP server.
const (
	headerLimit  = 5 * time.Second
	requestLimit = 10 * time.Second // for reading a request, and for handling it
	idleLimit    = time.Minute
	drainLimit   = 10 * time.Second
)

// A front answers HTTP from the start: /livez reports that the process runs, /readyz that the service does its work, and /metrics
// is for Prometheus. All other paths belong to the service's API, once open has set it.
type front struct {
	listens net.Addr
	service atomic.Pointer[opened]
}

type opened struct {
	api     http.Handler // may be nil
	ready   func() error
	metrics http.Handler
}

func (f *front) open(api http.Handler, ready func() error, metrics http.Handler) {
	f.service.Store(&opened{api, ready, metrics})
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service := f.service.Load()
	switch {
	case r.URL.Path == "/livez":
		_, _ = w.Write([]byte("ok\n"))
	case door.OnLoopback(f.listens) && !door.Called(r.Host, door.Localhost): // by a web page on this machine
		http.Error(w, "only requests for "+door.Localhost+" or a loopback address are answered", http.StatusMisdirectedRequest)
	case service == nil:
		http.Error(w, "waiting for the database or the schema registry", http.StatusServiceUnavailable)
	case r.URL.Path == "/readyz":
		if err := service.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	case r.URL.Path == "/metrics":
		service.metrics.ServeHTTP(w, r)
	case service.api == nil:
		http.NotFound(w, r)
	default:
		ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
		defer cancel()
		service.api.ServeHTTP(w, r.WithContext(ctx))
	}
}

// serve answers on l until ctx ends, and then finishes the requests in progress.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerLimit,
		ReadTimeout:       requestLimit,
		WriteTimeout:      2 * requestLimit,
		IdleTimeout:       idleLimit,
		MaxHeaderBytes:    16 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(door.Limit(l)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	if err := server.Shutdown(limited); err != nil {
		return server.Close()
	}
	return nil
}
