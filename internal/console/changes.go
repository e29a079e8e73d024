package console

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/admin/actions"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

// changes compare the last day of a database with the day before.
type changes struct {
	Since   time.Time           `json:"since"`        // a full hour, a day ago
	Letters []repair.Trend      `json:"dead_letters"` // by cause and hour, of both days
	Sagas   []sagadesk.Compared `json:"sagas"`        // that started in each of the days
	Actions []actions.Action    `json:"actions"`      // of operators since then, the newest five
}

const (
	aDay         = 24 * time.Hour
	actionsShown = 5
)

// dayAgo returns the full hour a day ago, so that it changes once an hour and not with each look.
func dayAgo() time.Time { return time.Now().UTC().Truncate(time.Hour).Add(-aDay) }

func (s *source) changes(ctx context.Context) (c changes, err error) {
	c = changes{Since: dayAgo(), Letters: []repair.Trend{}, Sagas: []sagadesk.Compared{}, Actions: []actions.Action{}}
	if c.Letters, err = s.repairs.Trends(ctx, c.Since.Add(-aDay), time.Hour); err != nil {
		return c, err
	}
	if c.Sagas, err = s.sagas.Compare(ctx, c.Since, aDay); err != nil {
		return c, err
	}
	c.Actions, _, err = actions.List(ctx, s.Pool, actions.Filter{Since: c.Since}, actions.Page{Limit: actionsShown})
	c.Letters, c.Sagas = orEmpty(c.Letters), orEmpty(c.Sagas)
	return c, err
}

// A compared is a line of what changed: a number of the last day, and the same of the day before.
type compared struct {
	Name         string
	Page         string
	Now, Earlier counted
	Bad          bool // more than the day before, of what should not happen
}

// changed has the changes of all databases.
type changed struct {
	Since   time.Time
	Lines   []compared
	Causes  int // of dead letters, that had none on the day before
	Hours   *sparks
	Actions []deed
}

// Changed returns what changed on all databases that can be read; nil: none can.
func (o overviewFacts) Changed() *changed {
	all := &changed{Hours: new(sparks)}
	sagas := make(map[saga.Status]*compared)
	var letters compared
	now, earlier := make(map[string]bool), make(map[string]bool)
	for _, d := range o.Databases {
		if d.Changes == nil {
			continue
		}
		all.Since = d.Changes.Since
		for _, t := range d.Changes.Letters {
			if t.At.Before(all.Since) {
				letters.Earlier.Count += t.Count
				earlier[t.Cause] = true
				continue
			}
			letters.Now.Count += t.Count
			now[t.Cause] = true
			all.Hours.add(t, all.Since)
		}
		for _, one := range d.Changes.Sagas {
			c := sagas[one.Status]
			if c == nil {
				c = &compared{Name: "sagas started, now " + string(one.Status)}
				c.Page = "/sagas?" + url.Values{"status": {string(one.Status)}, "since": {all.Since.Format(time.RFC3339)}}.Encode()
				sagas[one.Status] = c
			}
			c.Now, c.Earlier = c.Now.plus(one.Now), c.Earlier.plus(one.Earlier)
		}
		all.Actions = append(all.Actions, deedsOf(d.Name, d.Changes.Actions)...)
	}
	if all.Since.IsZero() {
		return nil
	}
	for cause := range now {
		if !earlier[cause] {
			all.Causes++
		}
	}
	letters.Name, letters.Page, letters.Bad = "dead letters", "/dead-letters?"+url.Values{"since": {all.Since.Format(time.RFC3339)}, "status": {"any"}}.Encode(), letters.Now.Count > letters.Earlier.Count
	all.Lines = append(all.Lines, letters)
	for _, status := range []saga.Status{saga.Parked, saga.Abandoned, saga.Compensated, saga.Completed, saga.Running, saga.Waiting, saga.Compensating} {
		if c := sagas[status]; c != nil && c.Now.Count+c.Earlier.Count > 0 {
			c.Bad = (status == saga.Parked || status == saga.Abandoned) && c.Now.Count > c.Earlier.Count
			all.Lines = append(all.Lines, *c)
		}
	}
	slices.SortStableFunc(all.Actions, func(a, b deed) int { return b.Last.Compare(a.Last) })
	all.Actions = all.Actions[:min(len(all.Actions), actionsShown)]
	return all
}

// plus adds a number that sagadesk.Compare has counted.
func (c counted) plus(n int) counted {
	return counted{c.Count + n, c.More || n >= sagadesk.MostCompared}
}

// Sizes of a small chart, in its own units.
const (
	sparkHours  = 25
	sparkWidth  = 150
	sparkHeight = 24
)

// sparks has the number of dead letters in each hour of the last day.
type sparks [sparkHours]int

func (s *sparks) add(t repair.Trend, since time.Time) {
	if n := int(t.At.Sub(since) / time.Hour); n >= 0 && n < sparkHours {
		s[n] += t.Count
	}
}

// Most returns the number of the highest hour.
func (s *sparks) Most() int { return slices.Max(s[:]) }

// Total returns the number of the day.
func (s *sparks) Total() (sum int) {
	for _, n := range s {
		sum += n
	}
	return sum
}

// Bars returns the columns of the chart.
func (s *sparks) Bars() (all []bar) {
	width := float64(sparkWidth) / sparkHours
	for i, n := range s {
		if n > 0 {
			h := max(float64(n)/float64(cmp.Or(s.Most(), 1))*sparkHeight, 1)
			all = append(all, bar{X: float64(i) * width, Y: sparkHeight - h, Width: width - 1, Height: h, Count: n})
		}
	}
	return all
}

// A stuck is a parked saga with the action that the console recommends.
type stuck struct {
	sagadesk.Row
	Do   saga.Kind `json:"recommended,omitempty"` // "": none
	With string    `json:"step,omitempty"`        // the step of Do
}

// stuckShown is the number of parked sagas that the overview shows of a database.
const stuckShown = 5

// stuckOf returns the first of these sagas, each with its recommended action. A saga that cannot be read has none.
func (s *source) stuckOf(ctx context.Context, parked []sagadesk.Row) []stuck {
	all := []stuck{}
	for _, row := range parked[:min(len(parked), stuckShown)] {
		one := stuck{Row: row}
		if g, err := s.sagas.Get(ctx, row.ID); err == nil {
			if e := recommended(g.Status, sagadesk.Possible(g.Definition, g.State, g.Now)); e != nil {
				one.Do, one.With = e.Kind, e.Step
			}
		}
		all = append(all, one)
	}
	return all
}

// Name returns the name of the recommended action.
func (s stuck) Name() string { return actionName(saga.Event{Kind: s.Do, Step: s.With}) }

// AnyStuck reports whether a saga is stuck.
func (o overviewFacts) AnyStuck() bool {
	return slices.ContainsFunc(o.Databases, func(d databaseFacts) bool { return len(d.Stuck) > 0 })
}
