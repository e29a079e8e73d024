package participant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestADiscardedDeadlineIsScheduledAgainWithKeep checks that the message whose dead letter was discarded is not handled again.
func TestADiscardedDeadlineIsScheduledAgainWithKeep(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	p := s.expecting()
	s.start(p)
	s.relayed()
	keep := func(n int, fail string) participant.Deadline {
		return participant.Deadline{Name: overdueName, Scope: "o-1", Key: "a", Keep: true, Body: Overdue{N: n, Fail: fail}}
	}
	require.NoError(t, s.schedule(p, keep(1, "permanent")))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	require.NoError(t, s.schedule(p, keep(2, "")))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE fired_at IS NOT NULL"), "the dead letter may be redriven")
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.dead_letters SET status = 'discarded'")
	require.NoError(t, err)
	require.NoError(t, s.schedule(p, keep(3, "")))
	s.waitCount(1, "SELECT count(*) FROM met WHERE n = 3")
	s.waitCount(0, "SELECT count(*) FROM troupe.deadlines")
}

// TestADeadlineOfAnyTimeInThePastIsDueAtOnce checks that the search for due deadlines has no lower bound.
func TestADeadlineOfAnyTimeInThePastIsDueAtOnce(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	p := s.expecting()
	s.start(p)
	s.relayed()
	for i, year := range []int{1970, 1900, 1} {
		require.NoError(t, s.schedule(p, participant.Deadline{
			Name: overdueName, Scope: "o-1", Key: "a", At: time.Date(year, 2, 1, 0, 0, 0, 0, time.UTC), Body: Overdue{N: i + 1},
		}))
		s.waitCount(1, "SELECT count(*) FROM met WHERE n = $1", i+1)
	}
}
