package participant_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestAStrangerWhoHoldsALockOfAParticipantIsNamed: Postgres has no rights on advisory locks, so that each role that may connect can stop
// a group's deadlines, or a partition, by a lock. The participant is not ready, and names the session; when it ends, all goes on.
func TestAStrangerWhoHoldsALockOfAParticipantIsNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	role := grantstest.New(t, s.pool)
	stranger, err := role.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer stranger.Release()
	const fireClass, leaseClass = 0x74727564, 0x74727570
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock($1::int, hashtext($2))", fireClass, s.hop.String())
	require.NoError(t, err)
	p := s.expecting()
	stop := s.start(p)
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "k", Body: Overdue{N: 1}, At: time.Now()}))
	named(t, p, role.Name, "deadlines are not fired")
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	s.fired(1)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
	stop()

	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock($1::int, $2::int)", leaseClass, s.count("SELECT id FROM troupe.leases WHERE partition = 0"))
	require.NoError(t, err)
	p = s.expecting()
	s.start(p)
	named(t, p, role.Name, "waits for")
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
}

// TestNoStrangerStopsTheRingOfTheInbox checks that only a role that may change the ring can lock it.
func TestNoStrangerStopsTheRingOfTheInbox(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.expecting()
	for name, role := range map[string]grantstest.Role{"connect": grantstest.New(t, s.pool), "viewer": grantstest.New(t, s.pool, grants.Viewer)} {
		stranger, err := role.Pool().Acquire(t.Context())
		require.NoError(t, err)
		defer stranger.Release()
		_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock($1)", int64(0x74726f75706502))
		require.NoError(t, err)
		require.NoError(t, p.TurnNow(), name)
		_, err = stranger.Exec(t.Context(), "DO $$ BEGIN LOCK TABLE troupe.inbox_slots IN SHARE UPDATE EXCLUSIVE MODE; END $$")
		require.ErrorContains(t, err, "permission denied")
		_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
		require.NoError(t, err)
	}
}

// TestAStrangerWhoHoldsALockOfLocalWorkIsNamed: of a topic, or of the number that the member would get.
func TestAStrangerWhoHoldsALockOfLocalWorkIsNamed(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"topic":   "SELECT pg_advisory_lock(x'74727563'::int, hashtext($1 || ' ' || $2))",
		"numbers": "SELECT pg_advisory_lock(x'7472756c'::int, n) FROM generate_series(1, 500) AS n WHERE $1 <> $2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLocalStage(t)
			s.makeLocal()
			role := grantstest.New(t, s.pool)
			stranger, err := role.Pool().Acquire(t.Context())
			require.NoError(t, err)
			defer stranger.Release()
			_, err = stranger.Exec(t.Context(), lock, s.hop.String(), s.hop.Commands())
			require.NoError(t, err)
			p := s.new()
			participant.Handle(p, count)
			s.start(p)
			named(t, p, role.Name, "local work")
			_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
			require.NoError(t, err)
			waitFor(t, "ready", func() bool { return p.Ready() == nil })
			s.write("k", Count{N: 1})
			s.waitCount(1, "SELECT count(*) FROM done")
		})
	}
}

// TestAStrangerWhoKeepsATopicLocalIsNamed: the error of end_local names the session that holds the lock of a member.
func TestAStrangerWhoKeepsATopicLocalIsNamed(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	role := grantstest.New(t, s.pool)
	stranger, err := role.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer stranger.Release()
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock(x'74727563'::int, hashtext($1 || ' ' || $2))", s.hop.String(), s.hop.Commands())
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), "SELECT troupe.end_local($1)", s.hop.Commands())
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, fmt.Sprintf("The locks of members are held by process %d of role %s.", stranger.Conn().PgConn().PID(), role.Name), refused.Detail)
}

// TestAStrangerWhomATransactionWaitsForIsNamed: a saga's start waits for the lock on its key, for example.
func TestAStrangerWhomATransactionWaitsForIsNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	role := grantstest.New(t, s.pool)
	stranger, err := role.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer stranger.Release()
	const class, object = 0x74727573, 1
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock($1, $2)", class, object)
	require.NoError(t, err)
	p := s.expecting()
	s.start(p)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
	waiting := make(chan error, 1)
	go func() {
		_, err := s.pool.Exec(context.WithoutCancel(t.Context()), "SELECT pg_advisory_lock_shared($1, $2), pg_advisory_unlock_shared($1, $2)", class, object)
		waiting <- err
	}()
	named(t, p, role.Name, "a transaction waits")
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	require.NoError(t, <-waiting)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
}

// named waits until the participant is not ready, for a reason that names the role's session and has the text.
func named(t *testing.T, p *participant.Participant, role, text string) {
	t.Helper()
	testkit.Wait(t, "the session is named", func() (bool, error) {
		reason := p.Ready()
		return reason != nil && strings.Contains(reason.Error(), text) && strings.Contains(reason.Error(), role) &&
			strings.Contains(reason.Error(), "pg_terminate_backend("), nil
	})
}
