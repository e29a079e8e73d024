package testkit

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
)

// startLimit is generous: the very first start may have to download Postgres.
const startLimit = 5 * time.Minute

var (
	databases  = shared[*cluster]{open: openCluster}
	broker     = shared[*devstack.Kafka]{open: openBroker}
	registries = shared[*devstack.Registry]{open: devstack.OpenRegistry}
)

// Postgres returns the server that the tests of this binary share. It does not sync to disk: a killed server process loses
// nothing, a power failure would.
func Postgres(t testing.TB) *devstack.Postgres {
	t.Helper()
	return databases.get(t).Postgres
}

// Kafka returns the bootstrap addresses of the broker that the tests of this binary share: TROUPE_KAFKA, else an embedded one.
func Kafka(t testing.TB) []string {
	t.Helper()
	return broker.get(t).Addrs()
}

// Registry returns the URL of the schema registry that the tests of this binary share. Its subjects are shared, too.
func Registry(t testing.TB) string {
	t.Helper()
	return registries.get(t).URL()
}

func openBroker(ctx context.Context) (*devstack.Kafka, error) {
	return devstack.OpenKafka(ctx, devstack.KafkaConfig{Log: zerolog.Nop()})
}

// closeServers closes the servers that were started: first the registry, then the broker, then Postgres.
func closeServers() error {
	return errors.Join(registries.close(), broker.close(), databases.close())
}

// shared is a server that the first test that needs it opens, for all tests of the binary. If it cannot be opened, all these
// tests fail.
type shared[S io.Closer] struct {
	open func(context.Context) (S, error)

	mu     sync.Mutex
	server S
	err    error
	opened bool
}

func (s *shared[S]) get(t testing.TB) S {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened && s.err == nil {
		// not the test's context, since the server outlives the test
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		s.server, s.err = s.open(ctx)
		s.opened = s.err == nil
	}
	require.NoError(t, s.err)
	return s.server
}

func (s *shared[S]) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func (s *shared[S]) close() error {
	if !s.isOpen() {
		return nil
	}
	return s.server.Close()
}
