package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
)

// groupFacts are the preview of an action on many dead letters.
type groupFacts struct {
	Database string         `json:"database"`
	Do       string         `json:"do"`
	Count    int            `json:"count"`
	Causes   []repair.Cause `json:"causes"` // the largest ten

	Asked url.Values `json:"-"`
}

func readGroup(ctx context.Context, a *ask) (any, error) {
	s, filter, err := a.group()
	if err != nil {
		return nil, err
	}
	f := groupFacts{Database: s.Name, Do: a.typed("do"), Asked: a.values}
	if f.Count, err = s.repairs.Count(ctx, filter); err == nil {
		f.Causes, _, err = s.repairs.Causes(ctx, filter, repair.Page{Limit: 10})
	}
	f.Causes = orEmpty(f.Causes)
	return f, err
}

// group returns the database and the filter of an action on many dead letters. An action on all of a database requires all=1.
func (a *ask) group() (*source, repair.Filter, error) {
	filter, err := a.letters()
	if err != nil {
		return nil, filter, err
	}
	s, err := a.database()
	switch {
	case err != nil:
		return nil, filter, err
	case a.typed("do") != "redrive" && a.typed("do") != "discard":
		return nil, filter, refuse(http.StatusBadRequest, "do %q: want redrive or discard", a.typed("do"))
	case filter.IsZero() && a.get("all") == "":
		return nil, filter, refuse(http.StatusBadRequest, "nothing chosen: name a cause or another filter, or say all=1")
	}
	return s, filter, nil
}

// Choice returns the parameters of the choice, for the form.
func (f groupFacts) Choice() url.Values {
	q := make(url.Values)
	for _, name := range []string{"db", "do", "cause", "group", "class", "handler", "type", "key", "topic", "hop", "since", "before", "all"} {
		for _, value := range f.Asked[name] {
			if value != "" {
				q.Add(name, value)
			}
		}
	}
	return q
}

var redriveWork, discardWork = aboutLetters.named("Redrive"), aboutLetters.named("Discard")

// actOnGroup begins a Work on the chosen dead letters.
func actOnGroup(ctx context.Context, a *ask) (any, string, error) {
	s, filter, err := a.group()
	if err != nil {
		return nil, "", err
	}
	rate, err := a.rate()
	if err != nil {
		return nil, "", err
	}
	if a.typed("do") == "discard" {
		if err := a.by.CheckReasoned(); err != nil {
			return nil, "", err
		}
		if err := a.counted(func() (int, error) { return s.repairs.Count(ctx, filter) }); err != nil {
			return nil, "", err
		}
	}
	one := &Work{kind: redriveWork, Database: s.Name, Chosen: groupFacts{Asked: a.values}.Choice().Encode()}
	if a.typed("do") == "discard" {
		one.kind = discardWork
	}
	return a.begin(one, func(ctx context.Context, tell func(func(*Work))) error {
		if one.Do == "discard" {
			return discardAll(ctx, s, filter, a.by, tell)
		}
		r, err := s.repairs.Redrive(ctx, filter, repair.RedriveConfig{By: a.by, Rate: rate, Progress: func(r repair.RedriveResult) {
			tell(func(w *Work) { w.redriven(r) })
		}})
		tell(func(w *Work) { w.redriven(r) })
		return err
	})
}

func (w *Work) redriven(r repair.RedriveResult) {
	w.Total, w.Done, w.Refused, w.Refusals = r.Total, r.Redriven, r.Refused, make([]Refusal, len(r.Refusals))
	for i, one := range r.Refusals {
		w.Refusals[i] = Refusal{one.ID.String(), one.Err}
	}
}

func discardAll(ctx context.Context, s *source, filter repair.Filter, by admin.Actor, tell func(func(*Work))) error {
	total, err := s.repairs.Count(ctx, filter)
	if err != nil {
		return err
	}
	tell(func(w *Work) { w.Total = total })
	n, err := s.repairs.Discard(ctx, filter, by)
	tell(func(w *Work) { w.Done, w.Total = n, max(n, w.Total) })
	return err
}
