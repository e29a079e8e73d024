package console

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/schedule"
)

const (
	// waitsAfter is the time after which troupe doctor reports a rebuild that waits, too.
	waitsAfter = 5 * time.Minute
	// runsLong is the time after which it reports one that runs.
	runsLong = 24 * time.Hour
)

// readJobs reads the schedules that are not run, and the rebuilds that wait. A role of an earlier version may lack the rights.
func (d *databaseFacts) readJobs(ctx context.Context, s *source, now time.Time) error {
	schedules, err := schedule.Desk{Pool: s.Pool}.List(ctx)
	if err != nil {
		return err
	}
	for _, one := range schedules {
		if r := rowOf(one, now); r.late() {
			d.Late = append(d.Late, r)
		}
	}
	list, _, err := rebuildRows(ctx, rebuilds.Desk{Pool: s.Pool})
	if err != nil {
		return err
	}
	for _, r := range list {
		if open := now.Sub(r.StartedAt); r.FinishedAt == nil && (open > waitsAfter && r.Begun < r.Partitions || open > runsLong) {
			d.Waiting = append(d.Waiting, r)
		}
	}
	return nil
}

// late reports whether an operator must look at the schedule.
func (r scheduleRow) late() bool { return r.State == "failing" || r.State == "overdue" }

// since returns when the run was requested, or was due.
func (r scheduleRow) since() time.Time {
	if r.RequestedAt != nil {
		return *r.RequestedAt
	}
	return r.NextAt
}

// jobNeeds adds a task for the schedules that are not run, and one for each rebuild that waits.
func (d *databaseFacts) jobNeeds(add addNeed) {
	if d.JobsError != "" {
		add(5, "soon", "Schedules and rebuilds cannot be read: "+d.JobsError, "Migrate the database, or grant this role the missing rights.", "/schedules")
	}
	if len(d.Late) > 0 {
		first := d.Late[0]
		for _, r := range d.Late {
			if r.since().Before(first.since()) {
				first = r
			}
		}
		why := "no coordinator runs it"
		if first.Error != "" {
			why = first.Error
		}
		n := add(4, "now", fmt.Sprintf("%s not run: %s: %s", count(len(d.Late), "schedule is", "schedules are"), first.Name, why),
			"Correct it with troupe schedule set, or run a coordinator on this database.", "/schedules")
		since := first.since()
		n.Since = &since
	}
	for _, r := range d.Waiting {
		text := fmt.Sprintf("Rebuild %d of %s waits in %d of %s", r.ID, r.Group, r.Partitions-r.Begun, count(r.Partitions, "partition", "partitions"))
		todo := "The page has the reason for each partition."
		if r.Begun == r.Partitions {
			text = fmt.Sprintf("Rebuild %d of %s has run for more than a day", r.ID, r.Group)
			todo = "If a partition makes no progress, since its topic or its last messages were deleted, cancel it."
		}
		since := r.StartedAt
		add(5, "soon", text, todo, "/rebuilds").Since = &since
	}
}
