package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAMessageThatKillsItsProcessIsPoison_Defect5: the first crash is nobody's fault; after five more behind its mark the
// message is a dead letter, and what came with it has its effect once.
func TestAMessageThatKillsItsProcessIsPoison_Defect5(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.batch = 10
	s.provision(1)
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1, Fail: "kill"}), s.command("c", Count{N: 1}),
		s.command("b", Count{N: 2}), s.command("a", Count{N: 2}))
	for range 6 {
		s.member("", 0).killed(t)
	}
	last := s.member("", 0)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND error = 'the process ended 5 times while this message ran'")
	s.waitCount(4, "SELECT count(*) FROM done")
	require.Equal(t, 1, s.count("SELECT count(*) FROM counters WHERE key = 'b' AND total = 1"))
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	last.terminate(t)
}
