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

	"github.com/troupe-go/troupe/devstack"
)

// startLimit is generous: the very first start may have to fetch Postgres.
const startLimit = 5 * time.Minute

var (
	databases  = shared[*cluster]{open: openCluster}
	broker     = shared[*devstack.Kafka]{open: openBroker}
	registries = shared[*devstack.Registry]{open: devstack.OpenRegistry}
)

// Postgres is the server the tests of this binary share. It does not sync to disk: a killed server loses nothing, a power cut would.
func Postgres(t testing.TB) *devstack.Postgres {
	t.Helper()
	return databases.get(t).Postgres
}

// Kafka is the bootstrap addresses of the broker the tests of this binary share: TROUPE_KAFKA, else an embedded one.
func Kafka(t testing.TB) []string {
	t.Helper()
	return broker.get(t).Addrs()
}

// Registry is the URL of the schema registry the tests of this binary share. Its subjects are shared, too.
func Registry(t testing.TB) string {
	t.Helper()
	return registries.get(t).URL()
}

func openBroker(ctx context.Context) (*devstack.Kafka, error) {
	return devstack.OpenKafka(ctx, devstack.KafkaConfig{Log: zerolog.Nop()})
}

// closeServers ends what was started, the clients' side first.
func closeServers() error {
	return errors.Join(registries.close(), broker.close(), databases.close())
}

// shared is a server that the first test to ask opens, for all tests of the binary. A failure to open it is every asker's.
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
		// Not the test's context: the server outlives the test.
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
