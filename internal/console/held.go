package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/topics"
)

// heldFacts are the held keys of all databases.
type heldFacts struct {
	Databases []heldOf `json:"databases"`

	Asked    url.Values `json:"-"`
	Filtered bool       `json:"-"`
}

// Classes returns the classes for the filter.
func (f heldFacts) Classes() []string { return repair.Classes() }

// More returns the query for the next page of a database.
func (f heldFacts) More(database, next string) string { return more(f.Asked, database, next) }

type heldOf struct {
	Database string           `json:"database"`
	Error    string           `json:"error,omitempty"`
	Held     []repair.HeldKey `json:"held"`
	Ages     repair.HeldAges  `json:"ages"` // of all held keys
	Next     string           `json:"next"`
}

func (a *ask) heldFilter() (repair.HeldFilter, error) {
	f := repair.HeldFilter{Group: a.get("group"), Class: a.get("class"), Topics: a.all("topic")}
	if key := a.values.Get("key"); key != "" {
		f.Key = repair.ParseKey(key)
	}
	if text := a.get("place"); text != "" {
		place, err := repair.ParsePlace(text)
		if err != nil {
			return f, refuse(http.StatusBadRequest, "%s", err)
		}
		f.Places = []repair.Place{place}
	}
	if err := f.Validate(); err != nil {
		return f, refuse(http.StatusBadRequest, "%s", err)
	}
	return f, nil
}

func readHeld(ctx context.Context, a *ask) (any, error) {
	filter, err := a.heldFilter()
	if err != nil {
		return nil, err
	}
	sources, page, err := a.listPage()
	if err != nil {
		return nil, err
	}
	databases := ofEach(sources, func(s *source) heldOf {
		keys, next, err := s.repairs.Held(ctx, filter, page)
		one := heldOf{Database: s.Name, Held: orEmpty(keys), Next: next}
		if err == nil && len(keys) > 0 {
			one.Ages, err = s.repairs.HeldByAge(ctx)
		}
		one.Error = errorText(err)
		return one
	})
	return heldFacts{Databases: databases, Asked: a.values, Filtered: !filter.IsZero()}, nil
}

// None reports whether there is nothing to show.
func (f heldFacts) None() bool {
	return !slices.ContainsFunc(f.Databases, func(one heldOf) bool { return one.Error != "" || len(one.Held) > 0 })
}

// heldKeyFacts are the facts of one held key.
type heldKeyFacts struct {
	Database string         `json:"database"`
	Held     repair.HeldKey `json:"held"`
}

func (f heldKeyFacts) title() string { return "Held key " + f.Held.Key.String() }

func readHeldKey(ctx context.Context, a *ask) (any, error) {
	s, err := a.database()
	if err != nil {
		return nil, err
	}
	filter, err := a.heldFilter()
	if err != nil {
		return nil, err
	}
	if len(filter.Places) == 0 {
		return nil, refuse(http.StatusBadRequest, "place: want topic/partition/offset")
	}
	keys, _, err := s.repairs.Held(ctx, filter, repair.Page{Limit: 2})
	switch {
	case err != nil:
		return nil, err
	case len(keys) == 0:
		return nil, refuse(http.StatusNotFound, "%s does not wait any more: it has taken effect, or became a dead letter", filter.Places[0])
	case len(keys) > 1:
		return nil, refuse(http.StatusBadRequest, "more than one group holds %s: name the group", filter.Places[0])
	}
	return heldKeyFacts{s.Name, keys[0]}, nil
}

// actOnHeld retries the held keys of a filter, or turns one held message into a dead letter.
func actOnHeld(ctx context.Context, a *ask) (any, string, error) {
	s, err := a.database()
	if err != nil {
		return nil, "", err
	}
	filter, err := a.heldFilter()
	if err != nil {
		return nil, "", err
	}
	switch a.typed("do") {
	case "retry":
		if filter.IsZero() && a.get("all") == "" {
			return nil, "", refuse(http.StatusBadRequest, "nothing chosen: name a place, a key, a topic, a group or a class, or say all=1")
		}
		n, err := s.repairs.Retry(ctx, filter, a.by)
		return map[string]int{"retried": n}, "/held?" + url.Values{"db": {s.Name}}.Encode(), err
	case "dead-letter":
		if len(filter.Places) != 1 {
			return nil, "", refuse(http.StatusBadRequest, "place: want topic/partition/offset")
		}
		if err := a.by.CheckReasoned(); err != nil {
			return nil, "", err
		}
		cfg := repair.ReleaseConfig{By: a.by, Group: filter.Group}
		if name := a.typed("hop"); name != "" {
			if cfg.Hop, err = topics.ParseHop(name); err != nil {
				return nil, "", refuse(http.StatusBadRequest, "hop: %s", err)
			}
		}
		r, err := s.repairs.Release(ctx, filter.Places[0], cfg)
		next := "/held?" + url.Values{"db": {s.Name}}.Encode()
		if err == nil && r.DeadLetter != uuid.Nil {
			next = "/dead-letter?" + url.Values{"db": {s.Name}, "id": {r.DeadLetter.String()}}.Encode()
		}
		return r, next, err
	}
	return nil, "", refuse(http.StatusBadRequest, "do %q: want retry or dead-letter", a.typed("do"))
}

// retold is an error whose page is shown again, with the form and the reason.
type retold struct {
	error
	facts any
}

func (r retold) Unwrap() error { return r.error }

// again returns err with the page's facts, after change. If the facts cannot be read it returns err.
func again(ctx context.Context, a *ask, err error, change func(any) any) error {
	var refused retold
	if errors.As(err, &refused) {
		return err
	}
	facts, readErr := a.page.read(ctx, a)
	if readErr != nil {
		return err
	}
	return retold{err, change(facts)}
}
