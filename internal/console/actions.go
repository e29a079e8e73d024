package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/admin/actions"
)

// actionsFacts are the actions of operators on all databases.
type actionsFacts struct {
	Databases []actionsOf `json:"databases"`

	Asked  url.Values `json:"-"`
	Actors []string   `json:"-"` // of the actions on the page
}

type actionsOf struct {
	Database string           `json:"database"`
	Error    string           `json:"error,omitempty"`
	Actions  []actions.Action `json:"actions"`
	Next     string           `json:"next"`
}

// An actionRow is an action with its database and the page of its object.
type actionRow struct {
	actions.Action
	Database string
	Page     string
}

func readActions(ctx context.Context, a *ask) (any, error) {
	filter := actions.Filter{Actor: a.get("actor")}
	var err error
	for _, m := range []struct {
		name string
		at   *time.Time
	}{{"since", &filter.Since}, {"before", &filter.Before}} {
		if *m.at, err = a.moment(m.name); err != nil {
			return nil, err
		}
	}
	sources, page, err := a.listPage()
	if err != nil {
		return nil, err
	}
	if err := filter.Validate(); err != nil {
		return nil, refuse(http.StatusBadRequest, "%s", err)
	}
	f := actionsFacts{Asked: a.values}
	f.Databases = ofEach(sources, func(s *source) actionsOf {
		list, next, err := actions.List(ctx, s.Pool, filter, actions.Page{After: page.After, Limit: page.Limit})
		return actionsOf{Database: s.Name, Error: errorText(err), Actions: orEmpty(list), Next: next}
	})
	for _, d := range f.Rows() {
		f.Actors = append(f.Actors, d.Actor)
	}
	slices.Sort(f.Actors)
	f.Actors = slices.Compact(f.Actors)
	return f, nil
}

// Rows returns the actions on all databases, the newest first.
func (f actionsFacts) Rows() (all []actionRow) {
	for _, d := range f.Databases {
		all = append(all, actionRows(d.Database, d.Actions)...)
	}
	slices.SortStableFunc(all, func(a, b actionRow) int { return b.Last.Compare(a.Last) })
	return all
}

func actionRows(database string, list []actions.Action) (all []actionRow) {
	for _, one := range list {
		all = append(all, actionRow{one, database, pageOf(database, one)})
	}
	return all
}

// pageOf returns the page of an action's object, or "". The messages of an outbox row are found even if the row was discarded.
func pageOf(database string, a actions.Action) string {
	switch {
	case a.Object == "saga":
		return "/saga?" + url.Values{"db": {database}, "id": {a.Example}}.Encode()
	case a.Object == "dead letter":
		return "/dead-letter?" + url.Values{"db": {database}, "id": {a.Example}}.Encode()
	case a.Object == "schedule":
		return "/schedules?" + url.Values{"db": {database}}.Encode()
	case a.Object == "rebuild":
		return "/rebuilds?" + url.Values{"db": {database}}.Encode()
	case a.Object == "erasure":
		return "" // there is none
	case a.Example == "":
		return "/relay"
	}
	return "/messages?" + url.Values{"q": {a.Example}}.Encode()
}

// Filtered reports whether the request has a filter.
func (f actionsFacts) Filtered() bool {
	return cmp.Or(f.Asked.Get("actor"), f.Asked.Get("since"), f.Asked.Get("before"), f.Asked.Get("db")) != ""
}

// With returns the query of this list with one value replaced.
func (f actionsFacts) With(name, value string) string { return with(f.Asked, name, value) }

// More returns the query for the next page of a database.
func (f actionsFacts) More(database, next string) string { return more(f.Asked, database, next) }
