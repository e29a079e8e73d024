package participant_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
)

// usePositions sets the next position of the outbox.
func (s *stage) usePositions(next int64) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), "SELECT setval('troupe.outbox_position_seq', $1)", next-1)
	require.NoError(s.t, err)
}

// TestLocalWorkGoesOnBehindTheLastPartition checks a flow on Postgres alone: no relay makes the partitions of the outbox.
func TestLocalWorkGoesOnBehindTheLastPartition(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	const last = 20_000_000 // of the first four partitions
	s.usePositions(last - 5)
	p := s.new()
	participant.Handle(p, count)
	s.start(p)
	s.ready(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox_partitions WHERE lo = $1 AND state = 'attached'", last)
	const commands = 20
	for n := range commands {
		s.write("a", Count{N: n + 1})
	}
	s.waitCount(commands, "SELECT count(*) FROM done")
	require.NotZero(t, s.count("SELECT count(*) FROM troupe.local_work WHERE position > $1", last))
}

// TestAMemberThatMayNotMakePartitionsReportsThatPositionsRunOut checks a role that does not own the outbox.
func TestAMemberThatMayNotMakePartitionsReportsThatPositionsRunOut(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.usePositions(16_000_000)
	pool := grantstest.New(t, s.pool, grants.LocalWork).Pool()
	var log safeBuffer
	p := s.new(func(c *participant.Config) { c.Pool, c.Log = pool, zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	waitFor(t, "a log line", func() bool { return strings.Contains(log.String(), "few positions left") })
	require.Contains(t, log.String(), `"positions":4000001`)
}
