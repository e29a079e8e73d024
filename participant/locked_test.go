package participant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// TestLockedInboxRowIsNoOutage: the server may go on with the statement of a run whose connection was lost, and keeps its
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

// TestAMessageOfARetryTopicWhoseRowIsLockedBecomesADeadLetter: the lock outlasts the statement that writes the dead letter, which
// is tried again, and the owner of its partition finds it wherever it waits.
func TestAMessageOfARetryTopicWhoseRowIsLockedBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	topic := s.hop.Retry(time.Second)
	m := s.command("a", Count{N: 1})
	m.ID = "not a UUID"
	locked := make(chan pgx.Tx, 1)
	var runs atomic.Int64
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	p.StatementLimit(300 * time.Millisecond)
	participant.Handle(p, func(ctx context.Context, _ pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Attempt == 1 {
			return participant.Outcome{}, errAsked
		}
		if runs.Add(1) > 1 {
			return participant.Outcome{}, retry.Permanent(errAsked)
		}
		orphan, err := s.pool.Begin(context.WithoutCancel(ctx))
		must(err)
		go func() { // it waits for the inbox row of this run, whose end gives it the row
			_, err := orphan.Exec(context.WithoutCancel(ctx), "INSERT INTO troupe.inbox (consumer_group, message_id, redrive) VALUES ($1, $2, 0)", p.Group(), m.Identity())
			must(err)
			locked <- orphan
		}()
		for waiting := 0; waiting == 0; {
			must(s.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
		}
		return participant.Outcome{}, retry.Permanent(errAsked)
	}, participant.RetryTopics(time.Second))
	s.start(p)
	s.send(m)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	s.publish(topic, 1)
	orphan := <-locked
	const waits = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	var began time.Time
	testkit.Wait(t, "the dead letter to wait for the row", func() (bool, error) {
		err := s.pool.QueryRow(t.Context(), "SELECT query_start "+waits).Scan(&began)
		return err == nil, err
	})
	waitFor(t, "its statement to be given up", func() bool { return s.count("SELECT count(*) "+waits+" AND query_start = $1", began) == 0 })
	require.NoError(t, orphan.Rollback(t.Context()))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
}
