package participant_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestACallHoldsNoConnection checks that no session has a transaction open while a service is called, for one message and for a batch:
// more calls than the pool has connections would else wait for each other.
func TestACallHoldsNoConnection(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"alone": 1, "in a batch": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			var mu sync.Mutex
			calling := 0
			answered := make(chan struct{})
			p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency, c.Timeout = batch, 8, time.Hour })
			participant.Call(p, func(ctx context.Context, c participant.Command[Count]) (int, error) {
				mu.Lock()
				calling++
				mu.Unlock()
				select {
				case <-answered:
					return c.Body.N, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}, func(_ context.Context, _ pgx.Tx, _ participant.Command[Count], n int) (participant.Outcome, error) {
				return participant.Succeed(Counted{N: n}), nil
			})
			s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 2}), s.command("c", Count{N: 3}))
			s.start(p)
			testkit.Wait(t, "three calls under way", func() (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return calling == 3, nil
			})
			s.waitCount(0, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'`)
			close(answered)
			s.waitEvents(3)
		})
	}
}

// TestACallOfAnUnreadableBodyIsNotMade checks that a body that cannot be read is a dead letter and calls nothing, and that an error of a
// call counts as one attempt.
func TestACallOfAnUnreadableBodyIsNotMade(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var mu sync.Mutex
	calls := make(map[int]int)
	p := s.new(onePartition, func(c *participant.Config) { c.Retry.Attempts, c.Immediate = 3, 2 })
	participant.Call(p, func(_ context.Context, c participant.Command[Count]) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		calls[c.Body.N]++
		if c.Body.Fail != "" {
			return 0, errors.New("the service is moody")
		}
		return c.Body.N, nil
	}, func(_ context.Context, _ pgx.Tx, _ participant.Command[Count], n int) (participant.Outcome, error) {
		return participant.Succeed(Counted{N: n}), nil
	})
	bad := s.command("a", Count{N: 1})
	bad.Payload = []byte(`{"n":"one"}`)
	s.send(bad, s.command("b", Count{N: 2, Fail: "error"}), s.command("c", Count{N: 3}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND attempts = 1")
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'transient' AND attempts = 3")
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND type = 'Counted'", s.hop.Events())
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[int]int{2: 3, 3: 1}, calls)
}

// TestTheAnswerOfACallWhoseMessageAnOperatorReleasedIsLogged has an operator make a held message a dead letter while its call is under way.
func TestTheAnswerOfACallWhoseMessageAnOperatorReleasedIsLogged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var log safeBuffer
	p := s.new(onePartition, holdLong, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	calling, answered := make(chan int, 9), make(chan struct{})
	participant.Call(p, func(_ context.Context, c participant.Command[Count]) (int, error) {
		if calling <- c.Attempt; c.Attempt == 1 {
			return 0, errAsked
		}
		<-answered
		return c.Body.N, nil
	}, func(_ context.Context, _ pgx.Tx, _ participant.Command[Count], n int) (participant.Outcome, error) {
		return participant.Succeed(Counted{N: n}), nil
	})
	s.send(s.command("a", Count{N: 1}))
	s.start(p)
	require.Equal(t, 1, <-calling)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	s.due()
	require.Equal(t, 2, <-calling)
	desk, err := repair.New(repair.Config{Pool: s.pool})
	require.NoError(t, err)
	_, err = desk.Release(t.Context(), repair.Place{Topic: s.hop.Commands()}, repair.ReleaseConfig{By: admin.Actor{Name: "ann", Reason: "test"}})
	require.NoError(t, err)
	close(answered)
	waitFor(t, "the line", func() bool { return strings.Contains(log.String(), "the answer of a call is not used") })
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox WHERE type = 'Counted'"))
}
