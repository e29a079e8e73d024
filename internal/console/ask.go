package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
)

// An ask is a request for a page, as far as pages use it.
type ask struct {
	*Console
	page    *page
	values  url.Values // of the address, or of the form
	user    user
	needs   Role        // of the page, or of the action
	sources []*source   // the databases on which the user has that role
	by      admin.Actor // the user; without an actor the request may not act
}

// askOf returns a user's request for a page, or for an action of it. It is the only code that compares roles, and it returns an error if
// the user does not have the role on the request's database, or on any database if the request names none.
func (c *Console) askOf(p *page, values url.Values, u user, needs Role) (*ask, error) {
	a := &ask{Console: c, page: p, values: values, user: u, needs: needs, by: admin.Actor{Name: u.name}}
	for _, s := range c.sources {
		if u.roles.on(s.Name) >= needs {
			a.sources = append(a.sources, s)
		}
	}
	switch {
	case len(a.sources) == 0:
		return nil, refuse(http.StatusForbidden, "%s needs the role %s", p.title, needs)
	case p.flow && !a.everywhere():
		return nil, refuse(http.StatusForbidden, "%s needs the role %s on all databases, since flows go through all of them", p.title, needs)
	}
	s, err := a.source(a.get("db"))
	switch {
	case err != nil && statusOf(err) == http.StatusForbidden:
		return nil, err
	case err == nil && u.name != "" && u.roles.on(s.Name) < Admin: // without a name it is a preview
		for _, field := range strings.Fields(p.adminFields) {
			if a.get(field) != "" {
				return nil, refuse(http.StatusForbidden, "%s: needs the role %s on %s", field, Admin, s.Name)
			}
		}
	}
	return a, nil
}

// everywhere reports whether the user has the role on all databases. Facts that belong to no single database need that.
func (a *ask) everywhere() bool { return len(a.sources) == len(a.Console.sources) }

// source returns the database of that name; "": the only one. A database on which the user has no role is not there.
func (a *ask) source(name string) (*source, error) {
	all := a.Console.sources
	if name == "" && len(all) == 1 {
		name = all[0].Name
	}
	for _, s := range all {
		switch {
		case s.Name != name || a.user.roles.on(name) < Viewer:
		case a.user.roles.on(name) < a.needs:
			return nil, refuse(http.StatusForbidden, "%s needs the role %s on %s: %s has the role %s", a.page.title, a.needs, name, a.user.name, a.user.roles.on(name))
		default:
			return s, nil
		}
	}
	if name == "" {
		return nil, refuse(http.StatusBadRequest, "db: want the name of a database: %s", strings.Join(a.names(), ", "))
	}
	return nil, refuse(http.StatusNotFound, "there is no database %s: want one of %s", name, strings.Join(a.names(), ", "))
}

// names returns the names of the databases on which the user has the role.
func (a *ask) names() []string {
	names := make([]string, len(a.sources))
	for i, s := range a.sources {
		names[i] = s.Name
	}
	return names
}

// work returns the Work of that id, if the user has the role on its database.
func (a *ask) work(id string) (Work, error) {
	one, err := a.works.find(id)
	if err != nil {
		return Work{}, err
	}
	_, err = a.source(one.Database)
	return one, err
}

// underWay returns the running works about the objects of a page with a list, of the databases on which the user has the role.
func (a *ask) underWay(list string) []Work {
	names := a.names()
	return slices.DeleteFunc(a.works.underWay(list), func(one Work) bool { return !slices.Contains(names, one.Database) })
}

// get returns a parameter as it is: the topic of a row, for example, may differ from another one in a blank only.
func (a *ask) get(name string) string { return a.values.Get(name) }

// typed returns a parameter that a person types and that nothing else is named by, without the blanks around it.
func (a *ask) typed(name string) string { return strings.TrimSpace(a.get(name)) }

// all returns the values of a parameter that may be repeated.
func (a *ask) all(name string) []string {
	return slices.DeleteFunc(slices.Clone(a.values[name]), func(value string) bool { return value == "" })
}

func (a *ask) database() (*source, error) { return a.source(a.get("db")) }

// chosen returns the database that the parameter db names; without it, all.
func (a *ask) chosen() ([]*source, error) {
	if a.get("db") == "" {
		return a.sources, nil
	}
	s, err := a.database()
	return []*source{s}, err
}

// listPage returns the databases of a list, and the page. Only the list of one database has further pages.
func (a *ask) listPage() (sources []*source, page repair.Page, err error) {
	if sources, err = a.chosen(); err != nil {
		return nil, page, err
	}
	if a.get("db") != "" {
		page.After = a.get("after")
	}
	page.Limit, err = a.limit()
	return sources, page, err
}

// ofEach calls read for all databases at the same time, and returns the results in their order.
func ofEach[T any](sources []*source, read func(*source) T) []T {
	facts := make([]T, len(sources))
	var all sync.WaitGroup
	for i, s := range sources {
		all.Go(func() { facts[i] = read(s) })
	}
	all.Wait()
	return facts
}

// errorText returns the text of an error; nil: "".
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

const perPage = 50

func (a *ask) limit() (int, error) {
	text := a.typed("limit")
	if text == "" {
		return perPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, refuse(http.StatusBadRequest, "limit %q: want 1 to 1000", text)
	}
	return n, nil
}

// number returns a count. "": 0.
func (a *ask) number(name string) (int64, error) {
	text := a.typed(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, refuse(http.StatusBadRequest, "%s %q: want a whole number", name, text)
	}
	return n, nil
}

// moment returns a time: RFC 3339, or a duration before now. "": the zero time.
func (a *ask) moment(name string) (time.Time, error) {
	text := a.typed(name)
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago <= 0 {
		return time.Time{}, refuse(http.StatusBadRequest, "%s %q: want a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h30m", name, text)
	}
	return time.Now().Add(-ago), nil
}
