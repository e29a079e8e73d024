package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	relays "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/saga"
)

// overviewFacts are the facts of the overview.
type overviewFacts struct {
	Needs     []need          `json:"needs"` // tasks for an operator, the most urgent first
	Databases []databaseFacts `json:"databases"`
	Lag       *lagFacts       `json:"consumers"` // null: no brokers are configured
	Window    string          `json:"window"`    // the period of Started
	Since     time.Time       `json:"since"`
	Every     time.Duration   `json:"every_ns"`
	// Started has, for each interval, the number of sagas that started in it, by their present status.
	Started []sagadesk.Started `json:"started"`
	Totals  []total            `json:"totals"` // of Started
}

// A need is one task for an operator.
type need struct {
	Urgency  string       `json:"urgency"`  // now, soon, or know
	Database string       `json:"database"` // "": the watcher's database
	Text     string       `json:"text"`
	Remedy   string       `json:"remedy"`
	Page     string       `json:"page"`             // the page for the task
	Since    *time.Time   `json:"since,omitempty"`  // when it began, if that is known
	Behind   string       `json:"behind,omitempty"` // the messages, rows or keys that wait for it
	All      *groupAction `json:"all,omitempty"`    // the action on all objects of the task

	rank int
}

// A groupAction is an action on many objects: its name and the address of its preview.
type groupAction struct {
	Name string `json:"name"`
	Page string `json:"page"`

	path, do string
}

// Path returns the path of the page, for the check of the role.
func (a groupAction) Path() string { return a.path }

// Do returns the action, for the check of the role.
func (a groupAction) Do() string { return a.do }

type total struct {
	Status saga.Status `json:"status"`
	Count  int         `json:"count"`
	About  bool        `json:"about,omitempty"` // it is an estimate
}

// databaseFacts are one database's facts. If one cannot be read, Error is set and the others are empty.
type databaseFacts struct {
	Name   string           `json:"database"`
	Error  string           `json:"error,omitempty"`
	Outbox *retention.Stats `json:"outbox"`
	// Relays has one entry for troupe.outbox and each mapped table; RelaysError is set if only these cannot be read.
	Relays      []outboxFacts  `json:"relays"`
	RelaysError string         `json:"relays_error,omitempty"`
	DeadLetters int            `json:"dead_letters"` // open
	Causes      []repair.Cause `json:"causes"`       // the largest five
	Held        counted        `json:"held_keys"`
	Missing     counted        `json:"missing_events"`                 // of expectations
	MissedSince *time.Time     `json:"missing_events_since,omitempty"` // when the first one was due
	Parked      counted        `json:"parked_sagas"`
	ParkedSince *time.Time     `json:"parked_sagas_since,omitempty"` // when the oldest started
	Stuck       []stuckSaga    `json:"stuck"`                        // the oldest five of Parked
	Questions   counted        `json:"questions"`                    // sagas that wait for an operator's answer
	Late        []scheduleRow  `json:"late_schedules"`               // overdue or failing
	Waiting     []rebuildRow   `json:"waiting_rebuilds"`             // for minutes
	JobsError   string         `json:"jobs_error,omitempty"`         // schedules or rebuilds cannot be read
	Changes     *changes       `json:"changes"`                      // null: they cannot be read

	started []sagadesk.Started
	types   map[string]int // counted parked sagas by type
	ages    repair.HeldAges
}

// counted is a number up to a limit. More is true if there are more.
type counted struct {
	Count int  `json:"count"`
	More  bool `json:"more,omitempty"`
}

func (c counted) String() string {
	if c.More {
		return strconv.Itoa(c.Count) + "+"
	}
	return strconv.Itoa(c.Count)
}

// of returns the number with its noun.
func (c counted) of(one, many string) string {
	if c.Count == 1 && !c.More {
		return "1 " + one
	}
	return c.String() + " " + many
}

// countTo is the limit up to which the overview counts; other pages list all.
const countTo = 100

// windows are the periods for which started sagas are counted, with their intervals.
var windows = []struct {
	name  string
	long  time.Duration
	every time.Duration
}{
	{"15m", 15 * time.Minute, 30 * time.Second},
	{"1h", time.Hour, 2 * time.Minute},
	{"24h", 24 * time.Hour, 30 * time.Minute},
	{"7d", 7 * 24 * time.Hour, 4 * time.Hour},
}

func readOverview(ctx context.Context, a *ask) (any, error) {
	name := cmp.Or(a.get("window"), "1h")
	var o overviewFacts
	for _, w := range windows {
		if w.name == name {
			o = overviewFacts{
				Window: name, Every: w.every, Since: time.Now().Add(w.every - w.long).Truncate(w.every).UTC(),
				Databases: make([]databaseFacts, len(a.sources)), Needs: []need{}, Started: []sagadesk.Started{}, Totals: []total{},
			}
		}
	}
	if o.Window == "" {
		return nil, refuse(http.StatusBadRequest, "window %q: want 15m, 1h, 24h or 7d", name)
	}
	var all sync.WaitGroup
	for i, s := range a.sources {
		all.Go(func() { o.Databases[i] = s.overview(ctx, o.Since, o.Every) })
	}
	if a.everywhere() {
		all.Go(func() { o.Lag = a.lag(ctx) })
		all.Go(func() { o.Needs = a.watchNeeds(ctx) })
	}
	all.Wait()
	for _, d := range o.Databases {
		o.Needs = append(o.Needs, d.needs()...)
		o.Started = append(o.Started, d.started...)
	}
	slices.SortStableFunc(o.Needs, func(a, b need) int { return cmp.Compare(a.rank, b.rank) })
	for _, status := range decisions.Statuses {
		sum := total{Status: status}
		for _, one := range o.Started {
			if one.Status == status {
				sum.Count += one.Count
				sum.About = sum.About || one.About
			}
		}
		if sum.Count > 0 {
			o.Totals = append(o.Totals, sum)
		}
	}
	return o, nil
}

// overview reads the facts of one database. It stops at the first error.
func (s *source) overview(ctx context.Context, since time.Time, every time.Duration) databaseFacts {
	d := databaseFacts{Name: s.Name, Causes: []repair.Cause{}, Relays: []outboxFacts{}, Stuck: []stuckSaga{}, Late: []scheduleRow{}, Waiting: []rebuildRow{}}
	var days changes
	var unknown error
	var other sync.WaitGroup
	other.Go(func() { days, unknown = s.changes(ctx) })
	err := d.read(ctx, s, since, every)
	if other.Wait(); err != nil {
		return databaseFacts{Name: s.Name, Causes: []repair.Cause{}, Relays: []outboxFacts{}, Stuck: []stuckSaga{}, Late: []scheduleRow{}, Waiting: []rebuildRow{}, Error: err.Error()}
	}
	if unknown == nil {
		d.Changes = &days
	}
	return d
}

func (d *databaseFacts) read(ctx context.Context, s *source, since time.Time, every time.Duration) error {
	stats, err := retention.ReadStats(ctx, s.Pool)
	if err != nil {
		return err
	}
	d.Outbox = &stats
	outboxes, err := relays.Look(ctx, s.Pool)
	if err != nil {
		d.RelaysError = err.Error()
	}
	for _, o := range outboxes {
		d.Relays = append(d.Relays, outboxFactsOf(o))
	}
	if d.DeadLetters, err = s.repairs.Count(ctx, repair.Filter{}); err != nil {
		return err
	}
	if d.DeadLetters > 0 {
		if d.Causes, _, err = s.repairs.Causes(ctx, repair.Filter{}, repair.Page{Limit: 5}); err != nil {
			return err
		}
	}
	held, err := s.repairs.CountHeld(ctx, countTo+1)
	if err != nil {
		return err
	}
	if d.Held = (counted{min(held, countTo), held > countTo}); held > 0 {
		if d.ages, err = s.repairs.HeldByAge(ctx); err != nil {
			return err
		}
	}
	missing, next, err := s.repairs.Expectations(ctx, repair.ExpectationFilter{Status: repair.Missing}, repair.Page{Limit: countTo})
	if err != nil {
		return err
	}
	if d.Missing = (counted{len(missing), next != ""}); len(missing) > 0 {
		d.MissedSince = &missing[0].DueAt
	}
	parked, err := d.readParked(ctx, s)
	if err != nil {
		return err
	}
	d.Stuck = s.stuckOf(ctx, parked)
	asking, more, err := s.sagas.CountQuestions(ctx, countTo+1)
	if err != nil {
		return err
	}
	d.Questions = counted{min(asking, countTo), more || asking > countTo}
	if err := d.readJobs(ctx, s, time.Now()); err != nil {
		d.JobsError = err.Error()
	}
	d.started, err = s.sagas.Started(ctx, since, every)
	return err
}

// readParked reads the parked sagas.
func (d *databaseFacts) readParked(ctx context.Context, s *source) ([]sagadesk.Row, error) {
	parked, more, err := s.sagas.List(ctx, sagadesk.Filter{Statuses: []saga.Status{saga.Parked}}, sagadesk.Page{Limit: countTo, Oldest: true})
	if err != nil {
		return nil, err
	}
	if d.Parked = (counted{len(parked), more != ""}); len(parked) > 0 {
		d.ParkedSince, d.types = &parked[0].StartedAt, make(map[string]int)
		for _, one := range parked {
			d.types[one.Saga]++
		}
	}
	return parked, nil
}

// watchNeeds returns the findings of the watcher that are still open.
func (c *Console) watchNeeds(ctx context.Context) []need {
	all := []need{}
	if c.cfg.Watch == nil {
		return all
	}
	lost := func(err error) []need {
		return append(all, need{Urgency: "now", Text: "The watcher's database cannot be read: " + err.Error(), Remedy: "Flows without an orchestrator are not shown.", Page: "/flows"})
	}
	names, err := watch.Names(ctx, c.cfg.Watch)
	if err != nil {
		return lost(err)
	}
	for _, name := range names {
		desk, err := watch.OpenDesk(ctx, c.cfg.Watch, name)
		if err != nil {
			return lost(err)
		}
		found, err := desk.Findings(ctx, true, countTo+1)
		if err != nil {
			return lost(err)
		}
		byKind := make(map[watch.Kind][]watch.Finding)
		for _, one := range found {
			byKind[one.Kind] = append(byKind[one.Kind], one)
		}
		for _, kind := range watch.Kinds {
			if some := byKind[kind]; len(some) > 0 {
				n := counted{min(len(some), countTo), len(some) > countTo}
				urgency, remedy := "now", "Is the service that should answer up? Look at one of the flows."
				if kind == watch.Unexpected {
					urgency, remedy = "soon", "Who sends it, and should a service declare it?"
				}
				all = append(all, need{
					Urgency: urgency, Text: fmt.Sprintf("Flow %s, %s %s: %s", name, n, kind, some[0].Text), Remedy: remedy,
					Page: "/flows?" + url.Values{"flow": {name}, "found": {string(kind)}}.Encode(), rank: map[bool]int{true: 4, false: 6}[urgency == "now"],
				})
			}
		}
	}
	return all
}

func count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// ago returns a duration before now; a negative one is after now.
func ago(d time.Duration) string {
	if d < 0 {
		return "in " + short(max(-d, time.Second))
	}
	return short(max(d, time.Second)) + " ago"
}

// short returns a duration in one readable unit.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// About reports whether a count is an estimate.
func (o overviewFacts) About() bool {
	return slices.ContainsFunc(o.Totals, func(one total) bool { return one.About })
}

// Windows returns the names of the periods.
func (o overviewFacts) Windows() []string {
	names := make([]string, len(windows))
	for i, w := range windows {
		names[i] = w.name
	}
	return names
}
