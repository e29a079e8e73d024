package console

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	relays "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/retention"
)

// relayFacts are the outboxes with their relays.
type relayFacts struct {
	Databases []outboxOf `json:"databases"`
}

type outboxOf struct {
	Database string           `json:"database"`
	Error    string           `json:"error,omitempty"`
	Outbox   *retention.Stats `json:"outbox"` // of troupe.outbox
	Relays   []relays.Outbox  `json:"relays"` // troupe.outbox first, then tables with a mapping
	Needs    []need           `json:"needs"`  // tasks for an operator
}

// needs returns the tasks of the outboxes.
func (o outboxOf) needs() []need {
	all := []need{}
	if o.Outbox == nil || o.Error != "" {
		return all
	}
	d := databaseFacts{Name: o.Database, Outbox: o.Outbox}
	for _, one := range o.Relays {
		d.Relays = append(d.Relays, outboxFactsOf(one))
	}
	d.outboxNeeds(d.adder(&all))
	return all
}

func readRelay(ctx context.Context, a *ask) (any, error) {
	return relayFacts{ofEach(a.sources, func(s *source) outboxOf {
		one := outboxOf{Database: s.Name, Relays: []relays.Outbox{}}
		stats, err := retention.ReadStats(ctx, s.Pool)
		if err == nil {
			one.Outbox = &stats
			one.Relays, err = relays.Look(ctx, s.Pool)
		}
		one.Error = errorText(err)
		one.Needs = one.needs()
		return one
	})}, nil
}

// relayState describes in a word whether relays publish the outbox.
func relayState(o relays.Outbox) string {
	if o.Paused != nil {
		return "paused"
	}
	held := 0
	for _, l := range o.Leases {
		if l.Held {
			held++
		}
	}
	switch {
	case held == 0:
		return "no relay"
	case held < o.Shards:
		return "not all shards"
	}
	return "active"
}

// badge is a status with another text than its own.
type badge struct{ Status, Text string }

// relayBadge returns the badge of an outbox's relays. Relays that are active over parked rows are not shown as if all were well.
func relayBadge(o relays.Outbox) badge {
	state, parked := relayState(o), 0
	for _, t := range o.Topics {
		parked += t.Parked
	}
	return badgeOf(state, parked)
}

func badgeOf(state string, parked int) badge {
	switch {
	case parked == 0:
		return badge{state, state}
	case state == "active":
		return badge{"parked", state + ", " + count(parked, "row", "rows") + " parked"}
	}
	return badge{state, state + ", " + count(parked, "row", "rows") + " parked"}
}

func tableName(name string) string {
	if name == "" {
		return "troupe.outbox"
	}
	return name
}

// relayDesk returns the desk of the outbox in the request.
func (a *ask) relayDesk() (*source, relays.Desk, error) {
	s, err := a.database()
	if err != nil {
		return nil, relays.Desk{}, err
	}
	return s, relays.Desk{DB: s.Pool, Table: relays.Table{Name: a.get("table")}}, nil
}

// failedRowsFacts are rows of one outbox that were not published at the first try.
type failedRowsFacts struct {
	Database string       `json:"database"`
	Table    string       `json:"table"`
	Rows     []relays.Row `json:"rows"`
	Next     int64        `json:"next"` // the value of after for the next page; 0: this is the last

	Asked url.Values `json:"-"`
}

func (f failedRowsFacts) title() string { return "Failed rows of " + tableName(f.Table) }

// Get returns a parameter of the address.
func (f failedRowsFacts) Get(name string) string { return f.Asked.Get(name) }

func readFailedRows(ctx context.Context, a *ask) (any, error) {
	s, desk, err := a.relayDesk()
	if err != nil {
		return nil, err
	}
	filter := relays.Filter{Status: relays.Status(a.get("status")), Topic: a.get("topic")}
	switch filter.Status {
	case "", relays.Parked, relays.Retrying, relays.Waiting:
	default:
		return nil, refuse(http.StatusBadRequest, "status %q: want parked, retrying or waiting", filter.Status)
	}
	page := relays.Page{}
	if page.Rows, err = a.limit(); err != nil {
		return nil, err
	}
	if page.After, err = a.number("after"); err != nil {
		return nil, err
	}
	f := failedRowsFacts{Database: s.Name, Table: desk.Table.Name, Asked: a.values}
	f.Rows, f.Next, err = desk.List(ctx, filter, page)
	f.Rows = orEmpty(f.Rows)
	return f, err
}

// failedRowFacts are the facts of one such row.
type failedRowFacts struct {
	Database string     `json:"database"`
	Table    string     `json:"table"`
	Row      relays.Row `json:"row"`
}

func (f failedRowFacts) title() string { return "Row " + f.Row.ID.String() }

// rowID returns the row that the parameters id and topic name. Without a topic it is the row of any topic.
func (a *ask) rowID() (relays.RowID, error) {
	id, err := uuid.Parse(a.get("id"))
	if err != nil {
		return relays.RowID{}, refuse(http.StatusBadRequest, "id: want a UUID")
	}
	return relays.RowID{ID: id, Topic: a.get("topic")}, nil
}

func readFailedRow(ctx context.Context, a *ask) (any, error) {
	s, desk, err := a.relayDesk()
	if err != nil {
		return nil, err
	}
	id, err := a.rowID()
	if err != nil {
		return nil, err
	}
	row, err := desk.Show(ctx, id)
	return failedRowFacts{s.Name, desk.Table.Name, row}, err
}

// actOnFailedRow retries or discards one row.
func actOnFailedRow(ctx context.Context, a *ask) (any, string, error) {
	s, desk, err := a.relayDesk()
	if err != nil {
		return nil, "", err
	}
	id, err := a.rowID()
	if err != nil {
		return nil, "", err
	}
	do := desk.Retry
	switch a.typed("do") {
	case "retry":
	case "discard":
		do = desk.Discard
		if err := a.by.CheckReasoned(); err != nil {
			return nil, "", err
		}
	default:
		return nil, "", refuse(http.StatusBadRequest, "do %q: want retry or discard", a.typed("do"))
	}
	done, err := do(ctx, id, a.by)
	return done, failureOf(s, desk), err
}

func failureOf(s *source, desk relays.Desk) string {
	q := url.Values{"db": {s.Name}}
	if desk.Table.Name != "" {
		q.Set("table", desk.Table.Name)
	}
	return "/relay/rows?" + q.Encode()
}

// relayActFacts are the preview of an action on an outbox, or on all parked rows of one of its topics.
type relayActFacts struct {
	Database string        `json:"database"`
	Do       string        `json:"do"` // retry, discard, pause or resume
	Outbox   relays.Outbox `json:"outbox"`
	Topic    *relays.Topic `json:"topic"` // of retry and discard; null: it has no failed row any more
	Rows     []relays.Row  `json:"rows"`  // the first ten of the rows
	Turns    []relays.Turn `json:"turns"` // of pause and resume: the last five

	Asked string `json:"-"` // the topic
}

func (f relayActFacts) title() string {
	return map[string]string{"retry": "Retry", "discard": "Discard", "pause": "Pause", "resume": "Resume"}[f.Do] + " · " + tableName(f.Outbox.Table)
}

// Possible reports whether the action would change something.
func (f relayActFacts) Possible() bool {
	switch f.Do {
	case "pause":
		return f.Outbox.Paused == nil
	case "resume":
		return f.Outbox.Paused != nil
	}
	return f.Topic != nil && f.Topic.Parked > 0
}

// readRelayAct reads the preview.
func readRelayAct(ctx context.Context, a *ask) (any, error) {
	s, desk, err := a.relayDesk()
	if err != nil {
		return nil, err
	}
	f := relayActFacts{Database: s.Name, Do: a.typed("do"), Rows: []relays.Row{}, Turns: []relays.Turn{}, Asked: a.get("topic")}
	all, err := relays.Look(ctx, s.Pool)
	if err != nil {
		return nil, err
	}
	known := false
	for _, o := range all {
		if o.Table == desk.Table.Name {
			f.Outbox, known = o, true
		}
	}
	if !known {
		return nil, refuse(http.StatusNotFound, "no relay has published a table %s", desk.Table.Name)
	}
	switch f.Do {
	case "retry", "discard":
		if f.Asked == "" {
			return nil, refuse(http.StatusBadRequest, "topic: want the one whose parked rows are meant")
		}
		for _, t := range f.Outbox.Topics {
			if t.Topic == f.Asked {
				f.Topic = &t
			}
		}
		if f.Topic == nil { // there are more topics than a look reads
			if n, err := desk.Parked(ctx, f.Asked); n > 0 {
				f.Topic = &relays.Topic{Topic: f.Asked, Parked: n}
			} else if err != nil {
				return nil, err
			}
		}
		rows, _, err := desk.List(ctx, relays.Filter{Status: relays.Parked, Topic: f.Asked}, relays.Page{Rows: 10})
		f.Rows = orEmpty(rows)
		return f, err
	case "pause", "resume":
		turns, err := desk.Turns(ctx, 5)
		f.Turns = orEmpty(turns)
		return f, err
	}
	return nil, refuse(http.StatusBadRequest, "do %q: want retry, discard, pause or resume", f.Do)
}

// relayDone is the result of actOnRelay.
type relayDone struct {
	Do   string `json:"do"`
	Rows int    `json:"rows"` // of retry and discard; with an error, the rows done before it
}

func actOnRelay(ctx context.Context, a *ask) (any, string, error) {
	s, desk, err := a.relayDesk()
	if err != nil {
		return nil, "", err
	}
	done, by := relayDone{Do: a.typed("do")}, a.by
	if done.Do != "retry" && done.Do != "resume" {
		if err := a.by.CheckReasoned(); err != nil {
			return nil, "", err
		}
	}
	switch topic := a.get("topic"); {
	case done.Do == "pause":
		return done, "/relay", desk.Pause(ctx, by)
	case done.Do == "resume":
		return done, "/relay", desk.Resume(ctx, by)
	case done.Do != "retry" && done.Do != "discard":
		return nil, "", refuse(http.StatusBadRequest, "do %q: want retry, discard, pause or resume", done.Do)
	case topic == "":
		return nil, "", refuse(http.StatusBadRequest, "topic: want the one whose parked rows are meant")
	case done.Do == "retry":
		done.Rows, err = desk.RetryTopic(ctx, topic, by)
	default:
		if err = a.counted(func() (int, error) { return desk.Parked(ctx, topic) }); err == nil {
			done.Rows, err = desk.DiscardTopic(ctx, topic, by)
		}
	}
	return done, failureOf(s, desk), err
}

// A keptChart is a chart of the log that a slot retained, in each five minutes of a day.
type keptChart struct {
	Width, Height int
	Most          int64 // bytes in the highest column
	Bars          []keptBar
	Since         time.Time
}

type keptBar struct {
	X, Y, Width, Height float64
	Retained            int64
	At                  time.Time
}

const keptEvery = 5 * time.Minute

// chartKept returns the chart of samples up to now. A column is missing if there is no sample.
func chartKept(samples []relays.Sample, now time.Time) *keptChart {
	if len(samples) == 0 {
		return nil
	}
	const columns = int(24 * time.Hour / keptEvery)
	c := &keptChart{Width: chartWidth, Height: chartHeight, Since: now.Truncate(keptEvery).Add(keptEvery - 24*time.Hour).UTC()}
	for _, s := range samples {
		c.Most = max(c.Most, s.Retained)
	}
	width := float64(chartWidth) / float64(columns)
	for _, s := range samples {
		n := int(s.At.Sub(c.Since) / keptEvery)
		if s.At.Before(c.Since) || n >= columns {
			continue
		}
		h := max(float64(s.Retained)/float64(max(c.Most, 1))*(chartHeight-4), 1)
		c.Bars = append(c.Bars, keptBar{float64(n) * width, chartHeight - h, width + 0.25, h, // no seams
			s.Retained, s.At.UTC()})
	}
	return c
}
