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

func wantAll(n, all int) error {
	if n == all {
		return nil
	}
	return fmt.Errorf("%d of %d", n, all)
}
