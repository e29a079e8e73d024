package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// sagasFacts are a page of a database's sagas, as troupe saga list prints them.
type sagasFacts struct {
	Database string         `json:"database"`
	Sagas    []sagadesk.Row `json:"sagas"`
	Next     string         `json:"next"`
	Works    []Work         `json:"works"` // retries that are under way
	Needs    []need         `json:"needs"` // the task for parked sagas, of all of the database

	Types     []string      `json:"-"` // of parked sagas
	Databases []string      `json:"-"`
	Statuses  []saga.Status `json:"-"`
	Asked     url.Values    `json:"-"`
	Filtered  bool          `json:"-"`
}

func readSagas(ctx context.Context, a *ask) (any, error) {
	filter := sagadesk.Filter{
		Saga: a.get("saga"), Key: a.values.Get("key"), Step: a.get("step"), Definition: a.get("definition"),
		Variable: a.get("variable"), Value: a.values.Get("value"),
	}
	for _, status := range a.values["status"] {
		if status != "" {
			filter.Statuses = append(filter.Statuses, saga.Status(status))
		}
	}
	var err error
	for _, m := range []struct {
		name string
		at   *time.Time
	}{{"since", &filter.StartedAfter}, {"before", &filter.StartedBefore}, {"still", &filter.NotMovedSince}} {
		if *m.at, err = a.moment(m.name); err != nil {
			return nil, err
		}
	}
	page := sagadesk.Page{After: a.get("after"), Oldest: a.get("oldest") != ""}
	if page.Limit, err = a.limit(); err != nil {
		return nil, err
	}
	for _, check := range []func() error{filter.Validate, page.Validate} {
		if err := check(); err != nil {
			return nil, refuse(http.StatusBadRequest, "%s", err)
		}
	}
	s, err := a.deciding(ctx)
	if err != nil {
		return nil, err
	}
	if filter.Variable != "" && a.user.roles.on(s.Name) < Operator { // a viewer could guess a value
		return nil, refuse(http.StatusForbidden, "variable: to find sagas by a variable needs the role %s on %s", Operator, s.Name)
	}
	list, next, err := s.sagas.List(ctx, filter, page)
	if err != nil {
		return nil, err
	}
	if list == nil {
		list = []sagadesk.Row{}
	}
	d := databaseFacts{Name: s.Name}
	if _, err := d.readParked(ctx, s); err != nil {
		return nil, err
	}
	needs := []need{}
	if d.Parked.Count > 0 {
		d.parkedNeed(d.adder(&needs))
	}
	return sagasFacts{
		Needs: needs, Types: slices.Sorted(maps.Keys(d.types)),
		Database: s.Name, Sagas: list, Next: next, Works: a.underWay("/sagas"), Databases: a.names(), Statuses: decisions.Statuses, Asked: a.values,
		Filtered: slices.ContainsFunc([]string{"saga", "key", "step", "definition", "variable", "value", "status", "since", "before", "still"}, func(name string) bool {
			return a.get(name) != ""
		}),
	}, nil
}

// deciding returns the database in the request, else the first that has sagas, else the first.
func (a *ask) deciding(ctx context.Context) (*source, error) {
	if a.get("db") != "" {
		return a.database()
	}
	for _, s := range a.sources {
		if some, _, err := s.sagas.List(ctx, sagadesk.Filter{}, sagadesk.Page{Limit: 1}); err == nil && len(some) > 0 {
			return s, nil
		}
	}
	return a.sources[0], nil
}

// OpenOnly describes the filter that matches no saga that has ended; "": there is none.
func (f sagasFacts) OpenOnly() string {
	switch {
	case f.Asked.Get("variable") != "":
		return "variables are looked up"
	case f.Asked.Get("definition") != "" && f.Asked.Get("status") == "":
		return "definitions are looked up, unless a status is chosen"
	}
	return ""
}

// With returns the query for the same list with another value.
func (f sagasFacts) With(name, value string) string { return with(f.Asked, name, value) }

func with(asked url.Values, name, value string) string {
	q := make(url.Values, len(asked)+1)
	for k, v := range asked {
		q[k] = v
	}
	if q.Set(name, value); value == "" {
		q.Del(name)
	}
	return "?" + q.Encode()
}

// more returns the query for the next page of one of the databases.
func more(asked url.Values, database, next string) string {
	q := maps.Clone(asked)
	q.Set("db", database)
	q.Set("after", next)
	return "?" + q.Encode()
}
