package explore_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
)

// One operation searches the whole order saga with one duplicate, one operator action and commands that are given up, on one
// core.
func BenchmarkOrder(b *testing.B) {
	d := load(b, order)
	states, before := 0, busy(b)
	for b.Loop() {
		r, err := explore.Explore(b.Context(), d, explore.Config{Duplicates: 1, Buttons: 1, Exhausted: true})
		require.NoError(b, err)
		require.True(b, r.Complete)
		states += r.States
	}
	b.ReportMetric(float64(states)/b.Elapsed().Seconds(), "states/s")
	b.ReportMetric(float64(states)/(busy(b)-before).Seconds(), "states/cpu-s")
}

// busy returns the CPU time of this process, which on a shared machine says more than the time of day.
func busy(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
