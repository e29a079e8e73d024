package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestSchedulesAreOperatedFromTheCommandLine sets a schedule, runs, pauses and resumes it, and deletes it.
func TestSchedulesAreOperatedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newDecider(t)
	do := func(verb string, more ...string) outcome {
		return s.troupe(append([]string{"schedule", verb, "nightly", "--actor", "ann", "--reason", "ticket 4711", "--yes"}, more...)...)
	}
	set := []string{"--cron", "30 2 1 1 *", "--zone", "Europe/Berlin", "--saga", "order",
		"--data", `{"customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1}`}
	o := do("set", append(set, "--dry-run")...)
	require.Equal(t, exitDone, o.status, o.stderr)
	require.Contains(t, o.stdout, "Would set schedule nightly, which starts saga order at 20")
	require.Equal(t, outcome{stdout: "No schedules.\n"}, s.troupe("schedule", "list"))
	o = do("set", set...)
	require.Equal(t, exitDone, o.status, o.stderr)
	require.Regexp(t, `^The schedule is set\. Next occurrence: \d{4}-01-01 01:30:00Z.\nA coordinator of this database runs it; troupe doctor warns if none does.\n$`, o.stdout)

	o = do("run")
	occurrence, requested := strings.CutPrefix(strings.TrimSuffix(o.stdout, ".\n"), "Requested: ")
	require.True(t, requested, o)
	s.await("order/"+occurrence, saga.Completed)

	require.Equal(t, outcome{stdout: "The schedule is paused.\n"}, do("pause"))
	require.Contains(t, s.troupe("schedule", "list").stdout, "paused")
	o = do("pause")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "schedule nightly is already paused")
	require.Contains(t, do("resume").stdout, "The schedule is resumed. Next occurrence: ")
	o = s.troupe("schedule", "show", "nightly")
	for _, text := range []string{"starts saga order", `"customer_id": "c-1"`, "ticket 4711", "resume", "new: 30 2 1 1 * Europe/Berlin"} {
		require.Contains(t, o.stdout, text)
	}
	require.Equal(t, outcome{stdout: "The schedule is deleted.\n"}, do("delete"))
	o = do("run")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, `schedule "nightly": not found`)
	require.Equal(t, exitUsage, do("set", "--cron", "0 0 31 2 *", "--saga", "order").status)
}
