package console

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/decisions"
)

// messagesFacts are the history of a key, a flow or a message: what troupe trace and troupe inbox find print.
type messagesFacts struct {
	Subject  string             `json:"subject"`
	Timeline *timeline.Timeline `json:"timeline"` // null: the request has no subject
	Found    []sighting         `json:"found"`    // inbox entries, if Subject is a message's id
	Sagas    []keySaga          `json:"sagas"`    // with Subject as their key, the newest ten of each database, or as their id

	Flow  bool   `json:"-"` // topics are read too
	Since string `json:"-"`
	All   bool   `json:"-"` // partitions
}

// A sighting is an inbox entry with its database.
type sighting struct {
	Database string `json:"database"`
	repair.Sighting
}

// A keySaga is a saga with its database.
type keySaga struct {
	Database string `json:"database"`
	sagadesk.Row
}

// sagasShown is the number of sagas of a key that the page shows of a database.
const sagasShown = 10

func readMessages(ctx context.Context, a *ask) (any, error) {
	f := messagesFacts{Subject: a.typed("q"), Found: []sighting{}, Sagas: []keySaga{}, Flow: len(a.cfg.Brokers) > 0 && a.everywhere(), Since: a.typed("since"), All: a.get("scan-all") != ""}
	if f.Subject == "" {
		return f, nil
	}
	cfg := timeline.Config{Registry: a.cfg.Registry, Timeout: askLimit / 3, Kafka: a.cfg.Kafka, ScanAll: f.All}
	if f.Flow { // topics have the messages of all databases
		cfg.Brokers, cfg.Flow = a.cfg.Brokers, a.cfg.Flow
	}
	if f.Since != "" {
		since, err := time.ParseDuration(f.Since)
		if err != nil || since <= 0 {
			return nil, refuse(http.StatusBadRequest, "since %q: want how far to look back, such as 24h", f.Since)
		}
		cfg.Since = since
	}
	for _, s := range a.sources {
		cfg.Databases = append(cfg.Databases, timeline.Database(s.Database))
	}
	if len(f.Subject) > 1024 {
		return nil, refuse(http.StatusBadRequest, "a key or id of %d bytes: want at most 1024", len(f.Subject))
	}
	inboxes := make([]inbox, len(a.sources))
	var all sync.WaitGroup
	for i, s := range a.sources {
		all.Go(func() { inboxes[i].found, inboxes[i].more, inboxes[i].err = s.repairs.Find(ctx, f.Subject) })
		all.Go(func() {
			inboxes[i].sagas, inboxes[i].sagasErr = s.sagasOf(ctx, f.Subject)
		})
	}
	var err error
	f.Timeline, err = timeline.Read(ctx, cfg, f.Subject)
	all.Wait()
	if err != nil {
		return nil, err
	}
	for i, s := range a.sources {
		if err := inboxes[i].err; err != nil {
			f.Timeline.Unseen = append(f.Timeline.Unseen, timeline.Unseen{What: "inbox of " + s.Name, Why: err.Error()})
		}
		if inboxes[i].more {
			f.Timeline.Unseen = append(f.Timeline.Unseen, timeline.Unseen{What: "inbox of " + s.Name, Why: "the id is in more places than were searched"})
		}
		if err := inboxes[i].sagasErr; err != nil {
			f.Timeline.Unseen = append(f.Timeline.Unseen, timeline.Unseen{What: "sagas of " + s.Name, Why: err.Error()})
		}
		for _, one := range inboxes[i].sagas {
			f.Sagas = append(f.Sagas, keySaga{s.Name, one})
		}
		for _, one := range inboxes[i].found {
			f.Found = append(f.Found, sighting{s.Name, one})
		}
	}
	return f, nil
}

// sagasOf returns the newest sagas of a key, or the saga with that id.
func (s *source) sagasOf(ctx context.Context, subject string) ([]sagadesk.Row, error) {
	list, _, err := s.sagas.List(ctx, sagadesk.Filter{Key: subject}, sagadesk.Page{Limit: sagasShown})
	if err != nil || len(list) > 0 {
		return list, err
	}
	one, err := s.sagas.Get(ctx, subject)
	switch {
	case errors.Is(err, decisions.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []sagadesk.Row{one.Row}, nil
}

// inbox is the result of the search in one database's inbox and sagas.
type inbox struct {
	found    []repair.Sighting
	more     bool
	err      error
	sagas    []sagadesk.Row
	sagasErr error
}

func (f messagesFacts) title() string {
	if f.Subject == "" {
		return "Messages"
	}
	return clip(f.Subject, 60) + " · Messages"
}

// A row is an entry of the timeline, with the entries that follow from it.
type row struct {
	timeline.Entry
	Number int
	Causes []int // entries that follow from it
	Says   []string
}

// Rows returns the entries, numbered from 1.
func (f messagesFacts) Rows() []row {
	if f.Timeline == nil {
		return nil
	}
	rows := make([]row, len(f.Timeline.Entries))
	for i, e := range f.Timeline.Entries {
		rows[i].Entry, rows[i].Number = e, i+1
		if e.Cause >= 0 && e.Cause < len(rows) {
			rows[e.Cause].Causes = append(rows[e.Cause].Causes, i+1)
		}
	}
	for _, one := range f.Timeline.Findings {
		if one.Entry >= 0 && one.Entry < len(rows) {
			rows[one.Entry].Says = append(rows[one.Entry].Says, one.Text)
		}
	}
	return rows
}

// By returns the number of the entry that this one follows from; 0: it is not there.
func (r row) By() int { return r.Cause + 1 }

// State returns the text of the entry's badge.
func (r row) State() string {
	switch {
	case r.DeadLetter != nil:
		return string(timeline.DeadLetter)
	case r.Held != nil:
		return string(timeline.Held)
	case r.Outbox != nil && r.Record == nil:
		return r.Outbox.Status
	}
	return string(r.Outcome)
}
