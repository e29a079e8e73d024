package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAKillAtAnyArrowLeavesEachSagaWhole kills a coordinator by SIGKILL at each arrow of its transaction, and lets another
// take over.
func TestAKillAtAnyArrowLeavesEachSagaWhole(t *testing.T) {
	t.Parallel()
	for _, arrow := range []struct {
		point string
		nth   int64
		batch int
	}{
		{"before the handler", 15, 1}, {"before the commit", 15, 20}, {"after the commit", 15, 20},
		{"after firing", 1, 20},
	} {
		t.Run(fmt.Sprintf("%s, %d at once", arrow.point, arrow.batch), func(t *testing.T) {
			t.Parallel()
			s := newCrew(t, awaiting(t, time.Second))
			s.task.Batch = arrow.batch
			victim := s.of("order")
			victim.Die, victim.Nth = arrow.point, arrow.nth
			l := load{crew: s}
			l.some(len(kinds))
			l.last()
			s.serve(hops[1:]...)
			spawn(t, victim).killed(t)
			open := s.count("order", "SELECT count(*) FROM troupe.sagas WHERE ended_at IS NULL")
			require.NotZero(t, open, "killed too late to show anything")
			s.mend()
			s.serve("order")
			s.settle(len(l.keys), broken)
			s.judge(l.keys) // how many of them complete within their time-outs depends on the machine
		})
	}
}
