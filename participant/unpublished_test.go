package participant_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// lockedBuffer is a buffer that several goroutines may write and read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(line)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestAServiceLogsThatNoRelayPublishesItsOutbox starts a participant with rows in its outbox that no relay publishes.
func TestAServiceLogsThatNoRelayPublishesItsOutbox(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]bool{"with Kafka": false, "with local work": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			_, err := s.pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, type, created_at)
				SELECT 'shop.order.events', 'Placed', now() - interval '5 minutes' FROM generate_series(1, 3)`)
			require.NoError(t, err)
			var log lockedBuffer
			p := s.new(onePartition, func(c *participant.Config) {
				c.Log = zerolog.New(&log)
				if local {
					c.Local, c.Brokers = true, nil
				}
			})
			participant.Handle(p, count)
			s.start(p)
			testkit.Wait(t, "the line", func() (bool, error) {
				return strings.Contains(log.String(), "no relay has run for this database: start outbox-relay run"), nil
			})
			require.Contains(t, log.String(), `"rows":3`)
		})
	}
}

// TestRowsThatARelayPublishesAreNotReported checks an active relay, one that has ended, and published rows that are kept.
func TestRowsThatARelayPublishesAreNotReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition)
	exec := func(sql string) {
		_, err := s.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	rows := func() int {
		n, err := p.Unpublished(t.Context())
		require.NoError(t, err)
		return n
	}
	exec("INSERT INTO troupe.outbox (topic, type, created_at) VALUES ('a', 'T', now() - interval '2 hours'), ('a', 'T', now() - interval '5 minutes')")
	require.Equal(t, 2, rows())
	exec("INSERT INTO troupe.relay_leases (shard, holder, term, expires_at) VALUES (0, 'relay', 1, now() + interval '1 hour'), (-1, 'of a table', 1, now())")
	require.Zero(t, rows())
	exec("UPDATE troupe.relay_leases SET expires_at = now() - interval '1 hour' WHERE shard = 0")
	require.Equal(t, 1, rows(), "the first may be published and kept")
	exec("UPDATE troupe.relay_leases SET expires_at = now() + interval '1000 years' WHERE shard = 0")
	require.Zero(t, rows())
}
