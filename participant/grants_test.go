package participant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
)

func TestAParticipantWorksWithNoMoreThanItsGrants(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	role := grantstest.New(t, s.pool, grants.Participant)
	_, err := s.pool.Exec(t.Context(), "GRANT ALL ON counters, done TO "+role.Name)
	require.NoError(t, err)
	pool := role.Pool()

	p := s.new(func(c *participant.Config) { c.Pool, c.Batch = pool, 10 })
	for days := range 3 { // the ring comes round
		_, err := p.Turn(time.Now().Add(time.Duration(40*(2-days)) * -24 * time.Hour))
		require.NoError(t, err)
	}
	require.NoError(t, p.PruneInbox())
	participant.Handle(p, count)
	stop := s.start(p)
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1, Fail: "error"}), s.command("b", Count{N: 2}), s.command("c", Count{Fail: "permanent"}))
	s.waitCount(2, "SELECT count(*) FROM troupe.dead_letters")
	s.waitCount(2, "SELECT count(*) FROM done")
	s.waitCount(2, "SELECT count(*) FROM troupe.leases WHERE released_at IS NULL") // of the partition without a message too
	stop()
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.leases WHERE released_at IS NOT NULL"))
	_, err = pool.Exec(t.Context(), "SELECT payload FROM troupe.outbox")
	require.ErrorContains(t, err, "permission denied")
}
