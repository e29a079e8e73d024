package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSchedulesAreShownWithTheOnesThatAreNotRun also checks that a viewer does not see the data of a schedule.
func TestSchedulesAreShownWithTheOnesThatAreNotRun(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Schedules()
	f := facts[schedulesFacts](d, "/schedules").Databases[0]
	var states []string
	for _, s := range f.Schedules {
		states = append(states, s.State)
	}
	require.Equal(t, []string{"failing", "overdue", "paused", "on time"}, states)
	page := d.html("/schedules")
	for _, text := range []string{"2 schedules are not run", "no variable of", "30 2 * * *", "Europe/Berlin", "shop.billing.commands"} {
		require.Contains(t, page, text)
	}
	require.NotContains(t, page, "4711")
	require.NotContains(t, d.get("/schedules").Body.String(), "4711")
}

// TestRebuildsAreShownWithTheirProgress has one that runs, with a partition that waits, and one that has finished.
func TestRebuildsAreShownWithTheirProgress(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Rebuilds()
	f := facts[rebuildsFacts](d, "/rebuilds").Databases[0]
	require.Len(t, f.Rebuilds, 2)
	require.Equal(t, "running", f.Rebuilds[0].State)
	require.EqualValues(t, 25, f.Rebuilds[0].Percent())
	require.Equal(t, "finished", f.Rebuilds[1].State)
	require.Empty(t, f.Rebuilds[1].Open)
	page := d.html("/rebuilds")
	for _, text := range []string{"25 % of 200 offsets", "shop.summary/Paid, shop.summary/Refused", "shop.payment.events/1", "waits for a member of the group"} {
		require.Contains(t, page, text)
	}
}
