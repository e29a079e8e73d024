package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/topics"
)

// causesFacts are the dead letters of all databases, by cause.
type causesFacts struct {
	Databases []causesOf `json:"databases"`
	Works     []Work     `json:"works"` // under way

	Asked    url.Values `json:"-"`
	Filtered bool       `json:"-"`
}

type causesOf struct {
	Database string         `json:"database"`
	Error    string         `json:"error,omitempty"`
	Causes   []repair.Cause `json:"causes"`
	Next     string         `json:"next"`
	Open     int            `json:"open,omitempty"`   // dead letters of the database, whatever the filter
	Trends   []repair.Trend `json:"trends,omitempty"` // by cause and hour, since Since
	Since    *time.Time     `json:"since,omitempty"`  // a full hour, a day ago
}

func readCauses(ctx context.Context, a *ask) (any, error) {
	filter, err := a.letters()
	if err != nil {
		return nil, err
	}
	sources, page, err := a.listPage()
	if err != nil {
		return nil, err
	}
	databases := ofEach(sources, func(s *source) causesOf {
		causes, next, err := s.repairs.Causes(ctx, filter, page)
		one := causesOf{Database: s.Name, Causes: orEmpty(causes), Next: next}
		if err == nil && len(causes) > 0 {
			since := dayAgo()
			one.Since = &since
			if one.Open, err = s.repairs.Count(ctx, repair.Filter{}); err == nil {
				one.Trends, err = s.repairs.Trends(ctx, since, time.Hour)
			}
		}
		one.Error = errorText(err)
		return one
	})
	return causesFacts{
		Databases: databases, Works: a.underWay("/dead-letters"), Asked: a.values,
		Filtered: slices.ContainsFunc([]string{"cause", "class", "group", "handler", "type", "key", "topic", "since", "before", "hop", "status"}, func(name string) bool { return a.get(name) != "" }),
	}, nil
}

// None reports whether there is nothing to show.
func (f causesFacts) None() bool {
	return !slices.ContainsFunc(f.Databases, func(one causesOf) bool { return one.Error != "" || len(one.Causes) > 0 })
}

// Hours returns the dead letters of a cause in each hour of the last day.
func (d causesOf) Hours(cause string) *hourlyCounts {
	s := new(hourlyCounts)
	for _, t := range d.Trends {
		if t.Cause == cause {
			s.add(t, *d.Since)
		}
	}
	return s
}

// Oldest returns the first failure of the causes on the page.
func (d causesOf) Oldest() time.Time {
	return slices.MinFunc(d.Causes, func(a, b repair.Cause) int { return a.First.Compare(b.First) }).First
}

// More returns the query for the next page of a database.
func (f causesFacts) More(database, next string) string { return more(f.Asked, database, next) }

// letters returns the filter in the request.
func (a *ask) letters() (f repair.Filter, err error) {
	f = repair.Filter{
		Cause: a.get("cause"), Group: a.get("group"), Class: a.get("class"), Handler: a.get("handler"), Type: a.get("type"),
		Status: repair.Status(a.get("status")), Topics: a.all("topic"),
	}
	if key := a.values.Get("key"); key != "" {
		f.Key = repair.ParseKey(key)
	}
	if name := a.typed("hop"); name != "" {
		hop, err := topics.ParseHop(name)
		if err != nil {
			return f, refuse(http.StatusBadRequest, "hop: %s", err)
		}
		f.Topics = append(f.Topics, hop.Commands(), hop.Events())
	}
	if f.Since, err = a.moment("since"); err != nil {
		return f, err
	}
	if f.Before, err = a.moment("before"); err != nil {
		return f, err
	}
	if err := f.Validate(); err != nil {
		return f, refuse(http.StatusBadRequest, "%s", err)
	}
	return f, nil
}

// lettersFacts are a page of a database's dead letters, as troupe dlq list prints them.
type lettersFacts struct {
	Database string              `json:"database"`
	Letters  []repair.DeadLetter `json:"dead_letters"`
	Next     string              `json:"next"`

	Asked url.Values `json:"-"`
}

func readLetters(ctx context.Context, a *ask) (any, error) {
	filter, err := a.letters()
	if err != nil {
		return nil, err
	}
	s, err := a.database()
	if err != nil {
		return nil, err
	}
	page := repair.Page{After: a.get("after")}
	if page.Limit, err = a.limit(); err != nil {
		return nil, err
	}
	letters, next, err := s.repairs.List(ctx, filter, page)
	if err != nil {
		return nil, err
	}
	return lettersFacts{s.Name, orEmpty(letters), next, a.values}, nil
}

// With returns the query for the same list with another value.
func (f lettersFacts) With(name, value string) string { return with(f.Asked, name, value) }

// letterFacts are the facts that troupe dlq show prints.
type letterFacts struct {
	Database string         `json:"database"`
	Letter   *repair.Letter `json:"dead_letter"`

	Text    string `json:"-"` // the text of the edit
	Refused string `json:"-"` // why the edit was refused
	Reason  string `json:"-"`
	Large   bool   `json:"-"` // there is no text of the edit: a payload of this size is edited on the command line
}

func edited(p repair.Payload) (text string, large bool) {
	if isCut(p) {
		return "", true
	}
	return pretty(p.JSON), false
}

func (f letterFacts) title() string { return "Dead letter " + f.Letter.ID.String() }

func readLetter(ctx context.Context, a *ask) (any, error) {
	s, err := a.database()
	if err != nil {
		return nil, err
	}
	id, err := uuid.Parse(a.get("id"))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "id %q: want a dead letter's id, a UUID", a.get("id"))
	}
	l, err := s.repairs.Show(ctx, id)
	if err != nil {
		return nil, err
	}
	f := letterFacts{Database: s.Name, Letter: l}
	switch {
	case l.Edit != nil && l.Edit.JSON != nil:
		f.Text, f.Large = edited(*l.Edit)
	case l.Payload.JSON != nil:
		f.Text, f.Large = edited(l.Payload)
	}
	return f, nil
}

// actOnLetter edits, redrives or discards one dead letter.
func actOnLetter(ctx context.Context, a *ask) (any, string, error) {
	s, err := a.database()
	if err != nil {
		return nil, "", err
	}
	id, err := uuid.Parse(a.get("id"))
	if err != nil {
		return nil, "", refuse(http.StatusBadRequest, "id %q: want a dead letter's id, a UUID", a.get("id"))
	}
	next := "/dead-letter?" + url.Values{"db": {s.Name}, "id": {id.String()}}.Encode()
	one := repair.Filter{IDs: []uuid.UUID{id}}
	if do := a.typed("do"); do == "edit" || do == "discard" {
		if err := a.by.CheckReasoned(); err != nil {
			return nil, "", err
		}
	}
	switch a.typed("do") {
	case "edit":
		text := a.values.Get("payload")
		if err := s.repairs.Edit(ctx, id, []byte(text), a.by); err != nil {
			return nil, "", again(ctx, a, err, func(facts any) any {
				f := facts.(letterFacts)
				f.Text, f.Refused, f.Reason = text, err.Error(), a.by.Reason
				return f
			})
		}
		l, err := s.repairs.Show(ctx, id)
		return letterFacts{Database: s.Name, Letter: l}, next, err
	case "redrive":
		r, err := s.repairs.Redrive(ctx, one, repair.RedriveConfig{By: a.by, SameKey: a.get("same_key") != ""})
		if err == nil && r.Refused > 0 {
			err = refuse(http.StatusConflict, "it was not redriven: %s", r.Refusals[0].Err)
		}
		return r, next, err
	case "discard":
		n, err := s.repairs.Discard(ctx, one, a.by)
		return map[string]int{"discarded": n}, next, err
	}
	return nil, "", refuse(http.StatusBadRequest, "do %q: want edit, redrive or discard", a.typed("do"))
}

// Classes returns the classes for the filter.
func (f causesFacts) Classes() []string { return repair.Classes() }

// Cause returns the cause that the list is filtered by; "": none, or the list is empty.
func (f lettersFacts) Cause() string {
	if len(f.Letters) == 0 {
		return ""
	}
	return f.Asked.Get("cause")
}
