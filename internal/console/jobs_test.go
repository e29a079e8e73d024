package console

import (
	"testing"
	"time"

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
	for _, text := range []string{`href="/sagas?db=order&amp;saga=billing"`, "2 schedules are not run", "no variable of", "30 2 * * *", "Europe/Berlin", "shop.billing.commands"} {
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
	for _, text := range []string{`href="/held?db=order&amp;group=shop.summary"`, `href="/dead-letters?db=order&amp;group=shop.summary"`, "25 % of 200 offsets", "shop.summary/Paid</a>, <a ", "shop.payment.events</a>/1", "waits for a member of the group"} {
		require.Contains(t, page, text)
	}
}

// TestTheOverviewHasTasksForSchedulesAndRebuilds checks that the overview reports what troupe doctor reports.
func TestTheOverviewHasTasksForSchedulesAndRebuilds(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Schedules()
	d.Rebuilds()
	tasks := func() map[string]need {
		all := make(map[string]need)
		for _, n := range facts[overviewFacts](d, "/").Needs {
			all[n.Text] = n
		}
		return all
	}
	all := tasks()
	late := all["2 schedules are not run: a-failing: no variable of"]
	require.Equal(t, "/schedules?db=order", late.Page)
	require.WithinDuration(t, time.Now().Add(-6*time.Minute), *late.Since, time.Minute)
	require.Len(t, all, 1, "the rebuild began a moment ago: %v", all)

	_, err := d.Pool.Exec(t.Context(), "UPDATE troupe.rebuilds SET started_at = now() - interval '6 minutes' WHERE finished_at IS NULL")
	require.NoError(t, err)
	waits := tasks()["Rebuild 2 of shop.summary waits in 1 of 2 partitions"]
	require.Equal(t, "/rebuilds?db=order", waits.Page)
	require.WithinDuration(t, time.Now().Add(-6*time.Minute), *waits.Since, time.Minute)
}

// TestFactsOfTheOverviewHaveTheirBeginning checks that rows that cannot be published, and missing events, are shown with the time of the first one.
func TestFactsOfTheOverviewHaveTheirBeginning(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.FailedRow("shop.none.commands", "parked", "UNKNOWN_TOPIC_OR_PARTITION")
	d.FailedRow("shop.large.commands", "retrying", "MESSAGE_TOO_LARGE")
	d.Expect("shipped", "o")
	_, err := d.Pool.Exec(t.Context(), "UPDATE troupe.outbox_failures SET first_failed_at = now() - interval '5 minutes'")
	require.NoError(t, err)
	needs := facts[overviewFacts](d, "/").Needs
	require.Len(t, needs, 3)
	for _, n := range needs {
		require.NotNil(t, n.Since, n.Text)
	}
	require.WithinDuration(t, time.Now().Add(-5*time.Minute), *needs[0].Since, time.Minute)
}
