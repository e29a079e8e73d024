package participant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	desk "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
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

// TestADeadlineWhoseRowWasDiscardedIsScheduledAgainWithKeep checks a deadline that fired, and whose message an operator of the relay
// discarded: it never comes, and is never a dead letter.
func TestADeadlineWhoseRowWasDiscardedIsScheduledAgainWithKeep(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	p := s.expecting()
	stop := s.start(p)
	keep := func(n int) participant.Deadline {
		return participant.Deadline{Name: overdueName, Scope: "o-1", Key: "a", Keep: true, Body: Overdue{N: n}}
	}
	require.NoError(t, s.schedule(p, keep(1)))
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox")
	stop()
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, convert_to(key, 'UTF8'), 'parked', 8, 8, 'TOPIC_AUTHORIZATION_FAILED' FROM troupe.outbox`)
	require.NoError(t, err)
	require.NoError(t, s.schedule(p, keep(2)))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.deadlines WHERE fired_at IS NULL"), "the row may be tried again")
	relayOperator := grantstest.New(t, s.pool, grants.RelayOperator).Pool()
	n, err := desk.Desk{DB: relayOperator}.DiscardTopic(t.Context(), s.hop.Commands(), admin.Actor{Name: "ann", Reason: "ticket 4711"})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, s.schedule(p, keep(3)))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE fired_at IS NULL AND convert_from(payload, 'UTF8')::jsonb->>'n' = '3'"))
	s.start(s.expecting())
	s.relayed()
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
	for i, at := range []time.Time{
		time.Date(1970, 2, 1, 0, 0, 0, 0, time.UTC), time.Date(1900, 2, 1, 0, 0, 0, 0, time.UTC), time.Date(1, 2, 1, 0, 0, 0, 0, time.UTC),
		time.Time{}.Add(-24 * time.Hour), // a day before a time that is not set
		time.Date(-290_000, 2, 1, 0, 0, 0, 0, time.UTC),
	} {
		require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Scope: "o-1", Key: "a", At: at, Body: Overdue{N: i + 1}}))
		s.waitCount(1, "SELECT count(*) FROM met WHERE n = $1", i+1)
	}
}
