package console

import (
	"context"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/schedule"
)

// schedulesFacts are the schedules of all databases.
type schedulesFacts struct {
	Databases []schedulesOf `json:"databases"`
}

type schedulesOf struct {
	Database  string        `json:"database"`
	Error     string        `json:"error,omitempty"`
	Schedules []scheduleRow `json:"schedules"`
}

// A scheduleRow is a schedule without its data: a viewer sees no payloads.
type scheduleRow struct {
	Name        string     `json:"name"`
	Cron        string     `json:"cron"`
	Zone        string     `json:"zone"`
	Target      string     `json:"target"`
	Saga        string     `json:"saga,omitempty"` // the type of saga that it starts; "": it sends a message
	State       string     `json:"state"`          // on time, overdue, failing or paused
	Error       string     `json:"error,omitempty"`
	NextAt      time.Time  `json:"next_at"`
	LastAt      *time.Time `json:"last_at"`
	RequestedAt *time.Time `json:"requested_at"` // when an operator requested a run that has not begun
}

// overdueAfter is the delay after which troupe doctor reports a schedule, too.
const overdueAfter = 2 * time.Minute

func rowOf(s schedule.Schedule, now time.Time) scheduleRow {
	r := scheduleRow{
		Name: s.Name, Cron: s.Cron, Zone: s.Zone, Target: s.Target(), Saga: s.Saga, State: "on time", Error: s.Error,
		NextAt: s.NextAt, LastAt: s.LastAt, RequestedAt: s.RequestedAt,
	}
	overdue := s.RequestedAt != nil && now.Sub(*s.RequestedAt) > overdueAfter || s.PausedAt == nil && now.Sub(s.NextAt) > overdueAfter
	switch {
	case s.Error != "":
		r.State = "failing"
	case overdue:
		r.State = "overdue"
	case s.PausedAt != nil:
		r.State = "paused"
	}
	return r
}

// None reports whether there is nothing to show.
func (f schedulesFacts) None() bool {
	return !slices.ContainsFunc(f.Databases, func(one schedulesOf) bool { return one.Error != "" || len(one.Schedules) > 0 })
}

// Late returns the number of schedules that an operator must look at.
func (d schedulesOf) Late() (n int) {
	for _, s := range d.Schedules {
		if s.late() {
			n++
		}
	}
	return n
}

func readSchedules(ctx context.Context, a *ask) (any, error) {
	sources, err := a.chosen()
	if err != nil {
		return nil, err
	}
	return schedulesFacts{ofEach(sources, func(s *source) schedulesOf {
		list, err := schedule.Desk{Pool: s.Pool}.List(ctx)
		one := schedulesOf{Database: s.Name, Error: errorText(err), Schedules: []scheduleRow{}}
		for _, s := range list {
			one.Schedules = append(one.Schedules, rowOf(s, time.Now()))
		}
		return one
	})}, nil
}
