package sagadesk

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

var (
	//go:embed sql/weigh_started.sql
	weighStarted string
	//go:embed sql/count_started.sql
	countStarted string
	//go:embed sql/sample_started.sql
	sampleStarted string
)

// A Started is the number of sagas that started in one interval and have a status now.
type Started struct {
	At     time.Time   `json:"at"` // when the interval begins
	Status saga.Status `json:"status"`
	Count  int         `json:"count"`
	// About is true if Count is an estimate.
	About bool `json:"about,omitempty"`
}

// countedTo is the number of sagas of one status up to which they are counted one by one.
const countedTo = 10_000

// Started counts the sagas that started since a time, by status, in intervals of length every that begin there; every is at
// least 1 s. If more than 10,000 of them have a status, it counts a sample for that status: sagas that started in short times
// that are spread over each interval, a tenth of it among a million sagas and a hundredth among ten million. These counts are
// About, and can be far off if nearly all sagas of an interval started at one moment. The counts of other statuses are exact.
// So it reads a bounded part of an index, however many sagas there are.
func (d *Desk) Started(ctx context.Context, since time.Time, every time.Duration) ([]Started, error) {
	if every < time.Second {
		return nil, fmt.Errorf("count started sagas: stretches of %s: want 1s or more", every)
	}
	const what = "count started sagas"
	type weight struct {
		Status saga.Status
		Count  int
	}
	args := pgx.NamedArgs{"statuses": decisions.Statuses, "since": since, "seconds": every.Seconds(), "limit": countedTo + 1}
	weights, err := collect[weight](ctx, d, what, weighStarted, args)
	if err != nil {
		return nil, err
	}
	few, many := []saga.Status{}, []saga.Status{}
	for _, w := range weights {
		switch {
		case w.Count > countedTo:
			many = append(many, w.Status)
		case w.Count > 0:
			few = append(few, w.Status)
		}
	}
	var all []Started
	for _, part := range []struct {
		statuses []saga.Status
		sql      string
	}{{few, countStarted}, {many, sampleStarted}} {
		if len(part.statuses) == 0 {
			continue
		}
		args["statuses"] = part.statuses
		some, err := collect[Started](ctx, d, what, part.sql, args)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b Started) int { return a.At.Compare(b.At) })
	return all, nil
}
