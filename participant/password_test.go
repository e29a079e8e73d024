package participant_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// Passwords that expire are set by the pool's BeforeConnect. A local participant holds one connection that is not of the pool,
// which needs them, too: at the start, and after the password has changed.
func TestALocalParticipantConnectsWithThePasswordOfTheMoment(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	role := grantstest.New(t, s.pool, grants.LocalWork)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := s.pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec("GRANT ALL ON counters, done, steps, claims TO " + role.Name)
	s.makeLocal()
	var password atomic.Value
	change := func(to string) {
		exec("ALTER ROLE " + role.Name + " PASSWORD '" + to + "'")
		password.Store(to)
	}
	change("first")
	config := role.Pool().Config()
	config.ConnConfig.Password = "expired"
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.Password = password.Load().(string)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p := s.new(func(c *participant.Config) { c.Pool = pool })
	participant.Handle(p, count)
	s.start(p)
	listens := func() (pid int) {
		t.Helper()
		testkit.Wait(t, "the connection for notifications", func() (bool, error) {
			err := s.pool.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE usename = $1 AND query LIKE 'LISTEN%'", role.Name).Scan(&pid)
			if errors.Is(err, pgx.ErrNoRows) {
				return false, p.Ready()
			}
			return err == nil, err
		})
		return pid
	}
	before := listens()
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done")
	change("second")
	exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role.Name)
	s.write("a", Count{N: 2})
	s.waitCount(2, "SELECT count(*) FROM done")
	testkit.Wait(t, "another connection", func() (bool, error) { return listens() != before, nil })
}
