package participant_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// inRepeatableRead makes repeatable read the default of the database's sessions.
func (s *stage) inRepeatableRead() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''', current_database()); END $$`)
	require.NoError(s.t, err)
	s.pool.Reset()
}

// TestLocalWorkGoesOnUnderAnyDefaultIsolation checks that claims and records of members that lock the same rows wait for each
// other.
func TestLocalWorkGoesOnUnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.inRepeatableRead()
	var failed atomic.Pointer[error]
	for range 3 {
		p := s.new(func(c *participant.Config) {
			c.Batch, c.Concurrency = 5, 4
			c.Hooks.Breaker = func(b participant.Breaker) {
				var refused *pgconn.PgError
				if errors.As(b.Err, &refused) && refused.Code == "40001" {
					failed.Store(&b.Err)
				}
			}
		})
		participant.Handle(p, count)
		s.start(p)
	}
	for n := range 600 {
		s.write(s.keys(7)[n%7], Count{N: n})
	}
	s.waitCount(600, "SELECT count(*) FROM done")
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
}

// TestDeadlinesFireUnderAnyDefaultIsolation checks that members that fire the deadlines of a group at the same time do not fail.
func TestDeadlinesFireUnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.inRepeatableRead()
	var logged safeBuffer
	var p *participant.Participant
	for range 3 {
		p = s.expecting(func(c *participant.Config) { c.Log = zerolog.New(&logged) })
		s.start(p)
	}
	s.relayed()
	const deadlines = 600
	for n := range deadlines {
		require.NoError(t, s.schedule(p, participant.Deadline{
			Name: overdueName, Scope: strconv.Itoa(n), After: time.Duration(n%40) * 100 * time.Millisecond, Body: Overdue{N: n},
		}))
	}
	s.waitMet(deadlines)
	require.NotContains(t, logged.String(), "fire deadlines failed")
}

// TestPermitsAreClaimedUnderAnyDefaultIsolation checks that members that claim permits of one rate limit at the same time wait for each other.
func TestPermitsAreClaimedUnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.inRepeatableRead()
	p := s.new()
	var members sync.WaitGroup
	for range 4 {
		members.Go(func() {
			c := participant.NewRateClaimer(p, "bank", 10_000, time.Second)
			for range 300 {
				if _, _, err := c.Claim(t.Context(), 1); err != nil {
					t.Errorf("claim: %v", err)
					return
				}
			}
		})
	}
	members.Wait()
}

// TestARateLimitThatAnotherMemberStoresIsUsedUnderAnyDefaultIsolation checks a member that stores a rate limit while another one has stored it and
// not committed.
func TestARateLimitThatAnotherMemberStoresIsUsedUnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.inRepeatableRead()
	p := s.new()
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `INSERT INTO troupe.rate_limits (consumer_group, handler, next_start, calls, span)
		VALUES ($1, 'bank', now(), 10000, '1 s')`, p.Group())
	require.NoError(t, err)
	claimed := make(chan error, 1)
	go func() {
		_, _, err := participant.NewRateClaimer(p, "bank", 10_000, time.Second).Claim(t.Context(), 1)
		claimed <- err
	}()
	s.waitCount(1, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%troupe.rate_limits%'`)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-claimed)
}

// TestACommitThatFailsAfterNoRowIsReported checks a statement that returns no row, and whose COMMIT fails. It also checks that such a statement stays
// prepared.
func TestACommitThatFailsAfterNoRowIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one := s.pool.Config()
	one.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), one)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p := s.new(func(c *participant.Config) { c.Pool = pool })
	_, err = s.pool.Exec(t.Context(), "CREATE TABLE refused (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	require.NoError(t, err)
	require.ErrorIs(t, p.QueryCommitted(t.Context(), "INSERT INTO refused VALUES (1)"), pgx.ErrNoRows)
	var prepared int
	require.NoError(t, p.QueryCommitted(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO refused%'", &prepared))
	require.Equal(t, 1, prepared)
	var refused *pgconn.PgError
	require.ErrorAs(t, p.QueryCommitted(t.Context(), "INSERT INTO refused VALUES (1)"), &refused)
	require.Equal(t, "23505", refused.Code)
}
