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
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
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
	Started []coordinator.Started `json:"started"`
	Totals  []total               `json:"totals"` // of Started
}

// A need is one task for an operator.
type need struct {
	Urgency  string `json:"urgency"`  // now, soon, or know
	Database string `json:"database"` // "": the watcher's database
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
	Page     string `json:"page"` // the page for the task

	rank int
}

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
	Relays      []relayStanding `json:"relays"`
	RelaysError string          `json:"relays_error,omitempty"`
	DeadLetters int             `json:"dead_letters"` // open
	Causes      []repair.Cause  `json:"causes"`       // the largest five
	Held        counted         `json:"held_keys"`
	Parked      counted         `json:"parked_sagas"`
	ParkedSince *time.Time      `json:"parked_sagas_since,omitempty"` // when the oldest started

	started []coordinator.Started
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
				Databases: make([]databaseFacts, len(a.sources)), Needs: []need{}, Started: []coordinator.Started{}, Totals: []total{},
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
	for _, status := range coordinator.Statuses {
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
	d := databaseFacts{Name: s.Name, Causes: []repair.Cause{}, Relays: []relayStanding{}}
	if err := d.read(ctx, s, since, every); err != nil {
		return databaseFacts{Name: s.Name, Causes: []repair.Cause{}, Relays: []relayStanding{}, Error: err.Error()}
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
		d.Relays = append(d.Relays, standingOf(o))
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
	d.Held = counted{min(held, countTo), held > countTo}
	parked, more, err := s.sagas.List(ctx, coordinator.Filter{Statuses: []saga.Status{saga.Parked}}, coordinator.Page{Limit: countTo, Oldest: true})
	if err != nil {
		return err
	}
	if d.Parked = (counted{len(parked), more != ""}); len(parked) > 0 {
		d.ParkedSince = &parked[0].StartedAt
	}
	d.started, err = s.sagas.Started(ctx, since, every)
	return err
}

// watchNeeds returns the findings of the watcher that are still open.
func (c *Console) watchNeeds(ctx context.Context) []need {
	all := []need{}
	if c.cfg.Watch == nil {
		return all
	}
	lost := func(err error) []need {
		return append(all, need{"now", "", "The watcher's database cannot be read: " + err.Error(), "Flows without an orchestrator are not shown.", "/flows", 0})
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
					urgency, "", fmt.Sprintf("Flow %s, %s %s: %s", name, n, kind, some[0].Text), remedy,
					"/flows?" + url.Values{"flow": {name}, "found": {string(kind)}}.Encode(), map[bool]int{true: 4, false: 6}[urgency == "now"],
				})
			}
		}
	}
	return all
}

const (
	lagSoon      = time.Minute
	headroomSoon = 1_000_000
)

// needs returns the tasks that this database's facts imply.
func (d *databaseFacts) needs() (all []need) {
	add := func(rank int, urgency, text, remedy, page string, values ...string) {
		q := url.Values{"db": {d.Name}}
		for i := 0; i+1 < len(values); i += 2 {
			q.Set(values[i], values[i+1])
		}
		all = append(all, need{urgency, d.Name, text, remedy, page + "?" + q.Encode(), rank})
	}
	if d.Error != "" {
		add(0, "now", "The database cannot be read: "+d.Error, "This service is not shown until its database answers.", "/relay")
		return all
	}
	if n := d.Outbox.Parked; n > 0 {
		add(1, "now", fmt.Sprintf("%s cannot be published, and the keys wait behind", count(n, "row", "rows")), "Look at the error; retry or discard each.", "/relay")
	}
	if d.Outbox.Oldest > lagSoon {
		add(2, "now", fmt.Sprintf("The outbox is %s behind, with %s to publish", short(d.Outbox.Oldest), count(d.Outbox.Pending, "row", "rows")),
			"Is the relay running, and Kafka reachable?", "/relay")
	}
	if d.RelaysError != "" {
		add(2, "soon", "The relays' tables cannot be read: "+d.RelaysError, "Migrate the database, or grant this role the missing rights.", "/relay")
	}
	for _, o := range d.Relays {
		d.relayNeeds(o, add)
	}
	if d.DeadLetters > 0 {
		text := count(d.DeadLetters, "dead letter", "dead letters")
		if len(d.Causes) > 0 { // none if they were redriven after they were counted
			text += ": " + d.Causes[0].Text()
		}
		add(3, "now", text,
			"Correct the cause, then redrive the group; or edit, or discard.", "/dead-letters")
	}
	if d.Parked.Count > 0 {
		add(4, "now", d.Parked.of("saga is", "sagas are")+" parked, the oldest since "+d.ParkedSince.UTC().Format(time.DateTime)+" UTC",
			"Each waits for a decision: its page says which are possible.", "/sagas", "status", string(saga.Parked), "oldest", "1")
	}
	if d.Outbox.Headroom < headroomSoon {
		add(5, "soon", fmt.Sprintf("The outbox's partitions have room for %s only", count(d.Outbox.Headroom, "row", "rows")), "A running relay makes more: why does it not?", "/relay")
	}
	if d.Held.Count > 0 {
		add(6, "soon", d.Held.of("key is held, and waits for its", "keys are held, and wait for their")+" next try", "They continue by themselves when the failure is over.", "/held")
	}
	if n := d.Outbox.Retrying; n > 0 {
		add(7, "know", fmt.Sprintf("%s tried again by the relay", count(n, "row is", "rows are")), "Kafka or the network fails, or was.", "/relay")
	}
	return all
}

// A relayStanding is the state of an outbox's relays.
type relayStanding struct {
	Table  string        `json:"table"` // "": troupe.outbox
	State  string        `json:"state"` // active, paused, no relay, not all shards
	Paused *relays.Pause `json:"paused"`
	Slot   string        `json:"slot_name"`
	WAL    string        `json:"wal_status"` // of the slot; "": there is no slot
	Parked int           `json:"parked"`

	ran bool
}

func standingOf(o relays.Outbox) relayStanding {
	r := relayStanding{Table: o.Table, State: relayState(o), Paused: o.Paused, Slot: o.SlotName, ran: len(o.Leases) > 0}
	if o.Slot != nil {
		r.WAL = o.Slot.WALStatus
	}
	for _, t := range o.Topics {
		r.Parked += t.Parked
	}
	return r
}

// relayNeeds adds the tasks for one outbox.
func (d *databaseFacts) relayNeeds(o relayStanding, add func(rank int, urgency, text, remedy, page string, values ...string)) {
	name := tableName(o.Table)
	if p := o.Paused; p != nil {
		add(1, "now", fmt.Sprintf("The relays of %s are paused since %s UTC by %s: %s", name, p.Since.UTC().Format(time.DateTime), p.Actor, p.Reason),
			"Rows wait until an operator resumes.", "/relay")
	} else if o.State != "active" && o.ran && d.Outbox.Pending > 0 {
		add(1, "now", fmt.Sprintf("No relay publishes %s (%s)", name, o.State), "Does one run, and reach the database?", "/relay")
	}
	if o.WAL == "unreserved" || o.WAL == "lost" {
		add(1, "now", fmt.Sprintf("Slot %s is %s: the server keeps no log for it much longer", o.Slot, o.WAL),
			"Find out why nothing is published; the relay replaces a lost slot.", "/relay")
	}
	if o.Table != "" && o.Parked > 0 { // troupe.outbox is counted by its statistics
		add(1, "now", fmt.Sprintf("%s of %s cannot be published, and the keys wait behind", count(o.Parked, "row", "rows"), name),
			"Look at the error; retry or discard each.", "/relay")
	}
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
