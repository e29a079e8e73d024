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

// changes has the facts of a database of the last day and of the day before.
type changes struct {
	Since   time.Time           `json:"since"`        // a full hour, a day ago
	Letters []repair.Trend      `json:"dead_letters"` // by cause and hour, in both days
	Sagas   []sagadesk.Compared `json:"sagas"`        // that started in each of the two days
	Actions []actions.Action    `json:"actions"`      // of operators since then, the newest five
}

const (
	day          = 24 * time.Hour
	actionsShown = 5
)

// dayAgo returns the full hour of a day ago. It is rounded so that open pages do not see a change with each query.
func dayAgo() time.Time { return time.Now().UTC().Truncate(time.Hour).Add(-day) }

func (s *source) changes(ctx context.Context) (c changes, err error) {
	c = changes{Since: dayAgo(), Letters: []repair.Trend{}, Sagas: []sagadesk.Compared{}, Actions: []actions.Action{}}
	if c.Letters, err = s.repairs.Trends(ctx, c.Since.Add(-day), time.Hour); err != nil {
		return c, err
	}
	if c.Sagas, err = s.sagas.Compare(ctx, c.Since, day); err != nil {
		return c, err
	}
	c.Actions, _, err = actions.List(ctx, s.Pool, actions.Filter{Since: c.Since}, actions.Page{Limit: actionsShown})
	c.Letters, c.Sagas = orEmpty(c.Letters), orEmpty(c.Sagas)
	return c, err
}

// A comparisonLine has a number of the last day, and the same number of the day before.
type comparisonLine struct {
	Name         string
	Page         string
	Now, Earlier counted
	Bad          bool // a failure is more frequent than the day before
}

// dayComparison has the changes of all databases.
type dayComparison struct {
	Since   time.Time
	Lines   []comparisonLine
	Causes  int // of dead letters, without a dead letter on the day before
	Hours   *hourlyCounts
	Actions []actionRow
}

// Changed returns the comparison over all databases that can be read; nil if none can.
func (o overviewFacts) Changed() *dayComparison {
	all := &dayComparison{Hours: new(hourlyCounts)}
	sagas := make(map[saga.Status]*comparisonLine)
	var letters comparisonLine
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
				c = &comparisonLine{Name: "sagas started, now " + string(one.Status)}
				c.Page = "/sagas?" + url.Values{"status": {string(one.Status)}, "since": {all.Since.Format(time.RFC3339)}}.Encode()
				sagas[one.Status] = c
			}
			c.Now, c.Earlier = c.Now.plus(one.Now), c.Earlier.plus(one.Earlier)
		}
		all.Actions = append(all.Actions, actionRows(d.Name, d.Changes.Actions)...)
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
	slices.SortStableFunc(all.Actions, func(a, b actionRow) int { return b.Last.Compare(a.Last) })
	all.Actions = all.Actions[:min(len(all.Actions), actionsShown)]
	return all
}

// plus adds a number that sagadesk.Compare has counted.
func (c counted) plus(n int) counted {
	return counted{c.Count + n, c.More || n >= sagadesk.MostCompared}
}

// Sizes of a small chart, in its own units.
const (
	hourlyBars   = 25
	hourlyWidth  = 150
	hourlyHeight = 24
)

// hourlyCounts has the number of dead letters in each hour of the last day, and in the hour that has begun.
type hourlyCounts [hourlyBars]int

func (s *hourlyCounts) add(t repair.Trend, since time.Time) {
	if n := int(t.At.Sub(since) / time.Hour); n >= 0 && n < hourlyBars {
		s[n] += t.Count
	}
}

// Most returns the number of the highest hour.
func (s *hourlyCounts) Most() int { return slices.Max(s[:]) }

// Total returns the number of the day.
func (s *hourlyCounts) Total() (sum int) {
	for _, n := range s {
		sum += n
	}
	return sum
}

// Bars returns the bars of the chart.
func (s *hourlyCounts) Bars() (all []bar) {
	width := float64(hourlyWidth) / hourlyBars
	for i, n := range s {
		if n > 0 {
			h := max(float64(n)/float64(cmp.Or(s.Most(), 1))*hourlyHeight, 1)
			all = append(all, bar{X: float64(i) * width, Y: hourlyHeight - h, Width: width - 1, Height: h, Count: n})
		}
	}
	return all
}

// A stuckSaga is a parked saga with the action that the console recommends.
type stuckSaga struct {
	sagadesk.Row
	Do   saga.Kind `json:"recommended,omitempty"` // "": none
	Step string    `json:"step,omitempty"`        // the step of Do
}

// stuckShown is the number of parked sagas that the overview shows of a database.
const stuckShown = 5

// stuckOf returns the first of these parked sagas, each with its recommended action. A saga that cannot be read has no action.
func (s *source) stuckOf(ctx context.Context, parked []sagadesk.Row) []stuckSaga {
	all := []stuckSaga{}
	for _, row := range parked[:min(len(parked), stuckShown)] {
		one := stuckSaga{Row: row}
		if g, err := s.sagas.Get(ctx, row.ID); err == nil {
			if e := recommended(g.Status, sagadesk.Possible(g.Definition, g.State, g.Now)); e != nil {
				one.Do, one.Step = e.Kind, e.Step
			}
		}
		all = append(all, one)
	}
	return all
}

// Name returns the name of the recommended action.
func (s stuckSaga) Name() string { return actionName(saga.Event{Kind: s.Do, Step: s.Step}) }

// AnyStuck reports whether a saga is stuck.
func (o overviewFacts) AnyStuck() bool {
	return slices.ContainsFunc(o.Databases, func(d databaseFacts) bool { return len(d.Stuck) > 0 })
}
