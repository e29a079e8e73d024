package participant_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
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
	named := func(p *participant.Participant, prefix string) {
		waitFor(t, "the session is named", func() bool {
			reason := p.Ready()
			return reason != nil && strings.Contains(reason.Error(), prefix) && strings.Contains(reason.Error(), role.Name) &&
				strings.Contains(reason.Error(), "pg_terminate_backend(")
		})
	}
	const fireClass, leaseClass = 0x74727564, 0x74727570
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock($1::int, hashtext($2))", fireClass, s.hop.String())
	require.NoError(t, err)
	p := s.expecting()
	stop := s.start(p)
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "k", Body: Overdue{N: 1}, At: time.Now()}))
	named(p, "deadlines are not fired")
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	s.fired(1)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
	stop()

	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock($1::int, $2::int)", leaseClass, s.count("SELECT id FROM troupe.leases WHERE partition = 0"))
	require.NoError(t, err)
	p = s.expecting()
	s.start(p)
	named(p, "waits for")
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
}
