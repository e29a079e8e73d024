package participant_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestADuplicateBehindAHeldKeyIsReportedOnce delivers a message twice in one batch, whose first delivery fails.
func TestADuplicateBehindAHeldKeyIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	m := s.command("a", Count{N: 1, Fail: "error"})
	s.send(m, m, s.command("a", Count{N: 2}))
	var held, passed atomic.Int64
	p := s.new(onePartition, holdLong, func(c *participant.Config) {
		c.Batch = 10
		c.Hooks.Held = func(d participant.Delivery) {
			if d.Offset == 1 {
				held.Add(1)
			}
		}
		c.Hooks.Passed = func(d participant.Passed) {
			if d.Offset == 1 && !d.Held {
				passed.Add(1)
			}
		}
	})
	participant.Handle(p, count)
	stop := s.start(p)
	s.waitCount(3, "SELECT count(*) FROM troupe.held")
	waitFor(t, "offset 3", func() bool { return s.committed(0) == 3 })
	stop()
	require.Equal(t, int64(1), held.Load())
	require.Zero(t, passed.Load(), "held, and passed as a duplicate")
}
