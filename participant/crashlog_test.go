package participant_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestACrashIsOneWarningForAllPartitions takes over the partitions of a member that was killed.
func TestACrashIsOneWarningForAllPartitions(t *testing.T) {
	t.Parallel()
	const partitions = 6
	s := newStage(t)
	s.provision(partitions)
	first := s.new()
	participant.Handle(first, count)
	stop := s.start(first)
	s.waitCount(partitions, "SELECT count(*) FROM troupe.leases")
	stop()
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.leases SET released_at = NULL") // as after a kill
	require.NoError(t, err)
	var log lockedBuffer
	p := s.new(func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	crashed := func(level string) (n int) {
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "last owner of a partition crashed") && strings.Contains(line, level) {
				n++
			}
		}
		return n
	}
	testkit.Wait(t, "all partitions", func() (bool, error) {
		n := crashed("")
		return n == partitions, wantAll(n, partitions)
	})
	require.Equal(t, 1, crashed(`"level":"warn"`))
}

// TestALeaseThatItsOwnerTakesTwiceIsNoCrash lets the read of the held keys fail, which comes after a member has taken a lease.
func TestALeaseThatItsOwnerTakesTwiceIsNoCrash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.send(s.command("a", Count{N: 1}))
	_, err := s.pool.Exec(t.Context(), "ALTER TABLE troupe.held RENAME COLUMN next_try TO next_try_away")
	require.NoError(t, err)
	var log lockedBuffer
	p := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	term := func() int {
		return s.count("SELECT coalesce(max(term), 0) FROM troupe.leases WHERE topic = $1", s.hop.Commands())
	}
	waitFor(t, "the lease", func() bool { return term() > 0 })
	first := term()
	waitFor(t, "the lease for the second time", func() bool { return term() > first })
	_, err = s.pool.Exec(t.Context(), "ALTER TABLE troupe.held RENAME COLUMN next_try_away TO next_try")
	require.NoError(t, err)
	s.waitCount(1, "SELECT count(*) FROM done")
	require.NotContains(t, log.String(), "last owner of a partition crashed")
	require.Zero(t, p.Stats().Partitions[0].Quarantined)
}

func wantAll(n, all int) error {
	if n == all {
		return nil
	}
	return fmt.Errorf("%d of %d", n, all)
}
