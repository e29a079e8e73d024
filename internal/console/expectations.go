package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

// expectationsFacts are the expectations of all databases.
type expectationsFacts struct {
	Databases []expectationsOf `json:"databases"`

	Asked    url.Values `json:"-"`
	Filtered bool       `json:"-"`
}

type expectationsOf struct {
	Database     string                    `json:"database"`
	Error        string                    `json:"error,omitempty"`
	Counts       []repair.ExpectationCount `json:"counts"`
	Expectations []repair.Expectation      `json:"expectations"`
	Next         string                    `json:"next"`
}

// Missing returns the sum of the counts; nil: no event is missing.
func (d expectationsOf) Missing() *repair.ExpectationCount {
	var sum repair.ExpectationCount
	for _, c := range d.Counts {
		sum.Missing += c.Missing
		if c.Missing > 0 && (sum.Oldest == nil || c.Oldest != nil && c.Oldest.Before(*sum.Oldest)) {
			sum.Oldest = c.Oldest
		}
	}
	if sum.Missing == 0 {
		return nil
	}
	return &sum
}

// Statuses returns the statuses for the filter.
func (f expectationsFacts) Statuses() []string { return repair.ExpectationStatuses() }

// More returns the query for the next page of a database.
func (f expectationsFacts) More(database, next string) string { return more(f.Asked, database, next) }

// None reports whether there is nothing to show.
func (f expectationsFacts) None() bool {
	return !slices.ContainsFunc(f.Databases, func(one expectationsOf) bool { return one.Error != "" || len(one.Counts) > 0 })
}

func readExpectations(ctx context.Context, a *ask) (any, error) {
	filter := repair.ExpectationFilter{Group: a.get("group"), Name: a.get("name"), Key: a.get("key"), Status: a.get("status")}
	if err := filter.Validate(); err != nil {
		return nil, refuse(http.StatusBadRequest, "%s", err)
	}
	sources, page, err := a.listPage()
	if err != nil {
		return nil, err
	}
	databases := ofEach(sources, func(s *source) expectationsOf {
		one := expectationsOf{Database: s.Name}
		counts, err := s.repairs.CountExpectations(ctx, filter)
		if err == nil {
			one.Expectations, one.Next, err = s.repairs.Expectations(ctx, filter, page)
		}
		one.Counts, one.Expectations, one.Error = orEmpty(counts), orEmpty(one.Expectations), errorText(err)
		return one
	})
	return expectationsFacts{Databases: databases, Asked: a.values, Filtered: !filter.IsZero()}, nil
}
