package participant_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestLockedInboxRowIsNoOutage checks a server that continues the statement of a run whose connection was lost, and keeps its
// inbox row meanwhile. The message's key waits, with an attempt counted, and other keys do not.
func TestLockedInboxRowIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]struct {
		ours   time.Duration
		server string
	}{
		"our own time-out": {300 * time.Millisecond, "0"},
		"lock_timeout":     {time.Minute, "100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			config := s.pool.Config()
			config.ConnConfig.RuntimeParams["lock_timeout"] = limit.server
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			var outages atomic.Int64
			p := s.new(onePartition, func(c *participant.Config) {
				c.Pool, c.Batch, c.Concurrency, c.Immediate = pool, 10, 1, -1
				c.Retry.Attempts = 1 << 20 // as many as it takes until the row is unlocked
				c.Hooks.Breaker = func(participant.Breaker) { outages.Add(1) }
			})
			p.StatementLimit(limit.ours)
			participant.Handle(p, count)
			m := s.command("a", Count{N: 1})
			m.ID = "not a UUID"
			orphan, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = orphan.Exec(t.Context(), "INSERT INTO troupe.inbox (consumer_group, message_id, redrive) VALUES ($1, $2, 0)", p.Group(), m.Identity())
			require.NoError(t, err)
			s.send(m, s.command("b", Count{N: 1}))
			s.start(p)
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'b'")
			s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0 AND last_error LIKE '%another session has locked rows%'")
			require.NoError(t, orphan.Rollback(t.Context()))
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'a'")
			require.Zero(t, outages.Load())
		})
	}
}
