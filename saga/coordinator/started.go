package coordinator

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

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

// A Started is how many of the sagas that started in a stretch of time have a status now.
type Started struct {
	At     time.Time   `json:"at"` // when the stretch begins
	Status saga.Status `json:"status"`
	Count  int         `json:"count"`
	// About says that Count is an estimate.
	About bool `json:"about,omitempty"`
}

// countedTo is up to how many sagas of one status are counted one by one.
const countedTo = 10_000

// Started counts the sagas that started since then, in stretches of a length that begin there. Of a status that more than
// 10,000 of them have, it counts a sample: those that started in short times that are spread over all of it, a tenth of it
// among a million sagas and a hundredth among ten million. Counts of that status are About, and can be wrong by much where
// nearly all sagas of a stretch started at one moment. Of every other status they are exact. So it reads a bounded part
// of an index, however many sagas there are.
func (d *Desk) Started(ctx context.Context, since time.Time, every time.Duration) ([]Started, error) {
	if every < time.Second {
		return nil, fmt.Errorf("count started sagas: stretches of %s: want 1s or more", every)
	}
	const what = "count started sagas"
	type weight struct {
		Status saga.Status
		Count  int
	}
	args := pgx.NamedArgs{"statuses": Statuses, "since": since, "seconds": every.Seconds(), "limit": countedTo + 1}
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
