package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestASkipOfTheGroupsOffsetOutlivesACrash sets the group's offset ahead, as an operator does to skip messages, and kills the
// next owner right after it has committed an offset of its own.
func TestASkipOfTheGroupsOffsetOutlivesACrash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition)
	participant.Handle(p, count)
	stop := s.start(p)
	s.send(s.command("a", Count{N: 1}), s.command("a", Count{N: 2}))
	s.waitCount(2, "SELECT count(*) FROM done")
	waitFor(t, "offset 2", func() bool { return s.committed(0) == 2 })
	stop()
	for n := 3; n <= 6; n++ {
		s.send(s.command("a", Count{N: n}))
	}
	s.skipTo(5)
	s.member("after the commit of offsets", 1).killed(t)
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE n = 6"))
	next := s.new(onePartition)
	participant.Handle(next, count)
	s.start(next)
	s.send(s.command("a", Count{N: 7}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 7")
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE n IN (3, 4, 5)"), "skipped messages took effect, after a later one of their key")
}
