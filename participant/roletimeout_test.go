package participant_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestAShortStatementTimeoutKeepsNoLeaseFromItsNextOwner checks a role whose statement_timeout is shorter than the wait for the
// transactions of the partition's last owner, which is frozen inside one.
func TestAShortStatementTimeoutKeepsNoLeaseFromItsNextOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	run := func(pool *pgxpool.Pool) (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) { c.Pool = pool })
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := run(s.pool)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")
	stop()
	conn, err := pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	frozen, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = frozen.Exec(t.Context(), "SELECT pg_advisory_xact_lock_shared($1, id) FROM troupe.leases WHERE topic = $2", participant.LeaseClass, s.hop.Commands())
	require.NoError(t, err)
	cfg := s.pool.Config()
	cfg.ConnConfig.RuntimeParams["statement_timeout"] = "900"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	run(pool)
	s.send(s.command("a", Count{N: 2}))
	s.waitCount(2, "SELECT count(*) FROM done")
}

// TestADeadlineIsMetWhereARoleReadsBackslashesAsEscapes checks a role, or a database, with standard_conforming_strings off, as programs that came
// from another database need it.
func TestADeadlineIsMetWhereARoleReadsBackslashesAsEscapes(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	cfg := s.pool.Config()
	cfg.ConnConfig.RuntimeParams["standard_conforming_strings"] = "off"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s.provision(1)
	s.start(s.expecting(func(c *participant.Config) { c.Pool = pool }))
	s.send(s.command("a", Count{N: 1, Fail: "schedule"}))
	s.send(s.fired(1)...)
	waitFor(t, "the end of the deadline", func() bool { return s.committed(0) == 2 })
	require.Equal(t, 1, s.count("SELECT count(*) FROM met"))
}
