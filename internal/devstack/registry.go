package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/internal/registry"
)

// Registry is a schema registry: srfake in this process, or the one that TROUPE_REGISTRY names.
type Registry struct {
	url    string
	server *http.Server // nil if it runs elsewhere
}

// StartRegistry starts a registry on a free port of 127.0.0.1, as StartRegistryAt does.
func StartRegistry(ctx context.Context) (*Registry, error) { return StartRegistryAt(ctx, 0) }

// StartRegistryAt starts a registry on a port of 127.0.0.1; 0 means a free one. It keeps its schemas in memory, and refuses schemas that are
// incompatible at their subject's level, BACKWARD unless set.
func StartRegistryAt(_ context.Context, port int) (*Registry, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("start registry: %w", err)
	}
	r := &Registry{url: "http://" + l.Addr().String()}
	itself, err := registry.New(r.url)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start registry: %w", err), l.Close())
	}
	r.server = &http.Server{
		Handler:           compatibility{srfake.NewRegistry().Handler(), itself},
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

// OpenRegistry uses the registry whose URL is in TROUPE_REGISTRY, else it starts one.
func OpenRegistry(ctx context.Context) (*Registry, error) {
	address := os.Getenv("TROUPE_REGISTRY")
	if address == "" {
		return StartRegistry(ctx)
	}
	itself, err := registry.New(address)
	if err == nil {
		_, err = itself.Versions(ctx, "troupe.devstack") // no error if there are none
	}
	if err != nil {
		return nil, fmt.Errorf("TROUPE_REGISTRY: %w", err)
	}
	return &Registry{url: address}, nil
}

// URL returns the root of Confluent's REST API.
func (r *Registry) URL() string { return r.url }

// Close stops the registry and closes its connections. It does nothing to a registry elsewhere.
func (r *Registry) Close() error {
	if r.server == nil {
		return nil
	}
	if err := r.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stop registry: %w", err)
	}
	return nil
}
