package console

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/schedule"
)

// waitsAfter is the time after which troupe doctor reports a rebuild that waits, too.
const waitsAfter = 5 * time.Minute

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
	list, err := rebuildRows(ctx, rebuilds.Desk{Pool: s.Pool})
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.FinishedAt == nil && now.Sub(r.since()) > waitsAfter && (r.CancelledAt != nil || r.Begun < r.Partitions) {
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

// since returns when the rebuild was started, or cancelled.
func (r rebuildRow) since() time.Time {
	if r.CancelledAt != nil {
		return *r.CancelledAt
	}
	return r.StartedAt
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
		since, text := r.since(), fmt.Sprintf("Rebuild %d of %s waits in %d of %s", r.ID, r.Group, r.Partitions-r.Begun, count(r.Partitions, "partition", "partitions"))
		if r.CancelledAt != nil {
			text = fmt.Sprintf("Rebuild %d of %s is cancelled, and waits for its members", r.ID, r.Group)
		}
		add(5, "soon", text, "The page has the reason for each partition.", "/rebuilds").Since = &since
	}
}
