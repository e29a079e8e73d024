package participant_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/testkit"
)

// TestAKillAtAnyArrowLosesAndDoublesNothing kills a member by SIGKILL at each arrow of the delivery diagram and lets
// another take over.
func TestAKillAtAnyArrowLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const keys, each = 5, 20
	for _, point := range []string{
		"before the handler", "before the commit", "after the commit",
		"before the commit of offsets", "after the commit of offsets",
	} {
		for _, batch := range []int{1, 20} {
			t.Run(fmt.Sprintf("%s, %d at once", point, batch), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.batch = batch
				nth := int64(keys * each / 2)
				if point == "before the commit of offsets" || point == "after the commit of offsets" {
					nth = 1
				}
				s.send(s.commands(keys, each)...)
				s.member(point, nth).killed(t)
				second := s.member("", 0)
				s.expectAll(keys, each)
				second.terminate(t)
			})
		}
	}
}

// TestAttemptsSurviveACrash kills the member after each failed attempt: the attempts made are never made again.
func TestAttemptsSurviveACrash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.send(s.command("a", Count{N: 1, Fail: "error"}), s.command("a", Count{N: 2}))
	for attempt := 1; attempt < 4; attempt++ {
		s.member("after a failed attempt", 1).killed(t)
		require.Equal(t, attempt, s.count("SELECT attempts FROM troupe.held WHERE attempts > 0"))
	}
	last := s.member("", 0)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 4 AND error_class = 'transient'")
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	require.Equal(t, 1, s.count("SELECT total FROM counters"), "what failed has left nothing")
	last.terminate(t)
}

// commands returns commands that are numbered within their keys, the keys in turn.
func (s *stage) commands(keys, each int) []envelope.Message { return s.commandsFrom(0, keys, each) }

func (s *stage) commandsFrom(first, keys, each int) (all []envelope.Message) {
	for n := range each {
		for k := range keys {
			all = append(all, s.command(fmt.Sprintf("k-%d", k), Count{N: first + n + 1}))
		}
	}
	return all
}

// expectAll waits for the end and checks: no command lost, doubled or out of its key's order, one answer for each.
func (s *stage) expectAll(keys, each int) {
	s.t.Helper()
	testkit.Wait(s.t, "all commands done", func() (bool, error) {
		n := s.count("SELECT count(*) FROM done")
		if n < keys*each {
			return false, fmt.Errorf("%d of %d", n, keys*each)
		}
		return true, nil
	})
	s.expectExactly(keys, each)
}

func (s *stage) expectExactly(keys, each int) {
	s.t.Helper()
	require.Equal(s.t, keys*each, s.count("SELECT count(*) FROM done"), "doubled effects")
	require.Equal(s.t, keys, s.count("SELECT count(*) FROM counters WHERE total = $1", each))
	require.Zero(s.t, s.count(`
		SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS d
		WHERE n <> before + 1`), "out of order within a key")
	require.Equal(s.t, keys*each, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events()), "answers")
	require.Equal(s.t, keys*each, s.count("SELECT count(DISTINCT headers->>'ce_causationid') FROM troupe.outbox WHERE topic = $1", s.hop.Events()))
	require.Zero(s.t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Zero(s.t, s.count("SELECT count(*) FROM troupe.held"))
}
