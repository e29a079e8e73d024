package watch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/topics"
)

var (
	//go:embed sql/find_newest.sql
	findNewest string
	//go:embed sql/find_by_key.sql
	findByKey string
	//go:embed sql/find_by_finding.sql
	findByFinding string
	//go:embed sql/find_unexpected.sql
	findUnexpected string
)

// Statuses are all of them; a flow of the last two has ended.
var Statuses = []Status{UnderWay, Deviant, Parked, Compensated, Completed}

// Kinds are all kinds of findings.
var Kinds = []Kind{Missing, Late, Stuck, Unexpected}

// A Filter chooses flows: those that every field that is set fits. The zero value fits all.
type Filter struct {
	Statuses []Status // one of these
	// Found chooses flows of which this was found. Of each unexpected type on a topic that is the flow of the last message.
	Found Kind
	// Key is the business key of one of its messages.
	Key string
	// BeganAfter is inclusive, BeganBefore is not.
	BeganAfter, BeganBefore time.Time
}

// Validate says what no flow could ever fit.
func (f Filter) Validate() error {
	for _, s := range f.Statuses {
		if !slices.Contains(Statuses, s) {
			return fmt.Errorf("status %q: want one of %s", s, list(Statuses))
		}
	}
	if f.Found != "" && !slices.Contains(Kinds, f.Found) {
		return fmt.Errorf("found %q: want one of %s", f.Found, list(Kinds))
	}
	return nil
}

func list[T ~string](all []T) string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = string(one)
	}
	return strings.Join(names, ", ")
}

// maxLooked is how many flows are looked at for one page, of which the filter may fit few.
const maxLooked = 150

// Find gives a page of flows, at most limit (1 to 1000). Those that began last come first; with Filter.Found, or Deviant
// alone, those of which it was found last. after is the mark that the page before gave, "" the beginning; next "" says that this was the last page.
// How a flow stands is told by all of its messages, so Find looks at 150 flows, or limit where that is more, and may give
// fewer than limit, or none, beside a mark to go on from.
func (d *Desk) Find(ctx context.Context, f Filter, limit int, after string) (flows []Flow, next string, err error) {
	if limit < 1 || limit > maxListed {
		return nil, "", fmt.Errorf("watch: limit %d: want 1 to %d", limit, maxListed)
	}
	if err := f.Validate(); err != nil {
		return nil, "", fmt.Errorf("watch: %w", err)
	}
	at, err := readMark(after)
	if err != nil {
		return nil, "", fmt.Errorf("watch: %w", err)
	}
	for looked := 0; looked < max(maxLooked, limit); {
		some, err := d.candidates(ctx, f, at, limit+1)
		if err != nil || len(some) == 0 {
			return flows, "", err
		}
		ids := make([]uuid.UUID, len(some))
		for i, one := range some {
			ids[i] = one.id
		}
		byID, err := d.read(ctx, ids)
		if err != nil {
			return nil, "", err
		}
		for i, one := range some {
			if len(flows) == limit {
				return flows, at.String(), nil
			}
			at = some[i]
			looked++
			if flow := byID[one.id]; flow != nil && f.fits(flow) {
				flow.Messages, flow.Waiting = nil, nil
				flows = append(flows, *flow)
			}
		}
		if len(some) <= limit {
			return flows, "", nil
		}
	}
	return flows, at.String(), nil
}

func (f Filter) fits(flow *Flow) bool {
	return (len(f.Statuses) == 0 || slices.Contains(f.Statuses, flow.Status)) &&
		(f.BeganAfter.IsZero() || !flow.BeganAt.Before(f.BeganAfter)) &&
		(f.BeganBefore.IsZero() || flow.BeganAt.Before(f.BeganBefore))
}

// ErrMark is wrapped by the error about a mark that no page has given.
var ErrMark = errors.New("want the mark that the page before gave")

// mark is a place in a list.
type mark struct {
	at time.Time
	id uuid.UUID
}

func (m mark) String() string { return m.at.UTC().Format(time.RFC3339Nano) + "," + m.id.String() }

var latest = mark{at: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), id: uuid.Max}

func readMark(text string) (m mark, err error) {
	if text == "" {
		return latest, nil
	}
	at, id, _ := strings.Cut(text, ",")
	if m.at, err = time.Parse(time.RFC3339Nano, at); err == nil {
		m.id, err = uuid.Parse(id)
	}
	if err != nil {
		return m, fmt.Errorf("mark %q: %w", text, ErrMark)
	}
	return m, nil
}

// candidates are flows behind a mark that the filter may fit. What can be asked of the database is.
func (d *Desk) candidates(ctx context.Context, f Filter, after mark, most int) ([]mark, error) {
	args := pgx.NamedArgs{"flow": d.flow, "at": after.at, "id": after.id, "most": most, "key": string(textOf([]byte(f.Key)))}
	sql := findNewest
	if f.Found == "" && slices.Equal(f.Statuses, []Status{Deviant}) { // only what was found makes a flow deviant
		args["rules"], args["late"] = rulesOfKind(d.rules, ""), false
		sql = findByFinding
	}
	switch {
	case f.Found == Unexpected:
		sql = findUnexpected
	case f.Found != "":
		kind := f.Found
		if kind == Late {
			kind = ""
		}
		sql = findByFinding
		args["rules"], args["late"] = rulesOfKind(d.rules, kind), f.Found == Late
	case f.Key != "" && sql == findNewest:
		sql = findByKey
	}
	args["of_key"] = f.Key != ""
	args["after"], args["before"] = orLimit(f.BeganAfter, time.Unix(0, 0)), orLimit(f.BeganBefore, latest.at)
	// Planned anew each time: what is asked of few flows and of nearly all wants different plans.
	rows, err := d.pool.Query(ctx, sql, pgx.QueryExecModeExec, args)
	var all []mark
	if err == nil {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m mark, err error) { return m, row.Scan(&m.at, &m.id) })
	}
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return all, nil
}

// rulesOfKind are the numbers of rules; "": of all.
func rulesOfKind(rules []rule, kind Kind) []int32 {
	all := []int32{}
	for i, r := range rules {
		if kind == "" || r.kind == kind {
			all = append(all, int32(i))
		}
	}
	return all
}

func orLimit(at, limit time.Time) time.Time {
	if at.IsZero() {
		return limit
	}
	return at
}

// Names are the flows that are watched in a database.
func Names(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, err := pool.Query(ctx, "SELECT n.name FROM troupe.watch_flows AS f JOIN troupe.watch_names AS n ON n.id = f.flow ORDER BY n.name")
	var names []string
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		err = fmt.Errorf("watch: %w", err)
	}
	return names, err
}

// Declares says whether a service declares to send a type on a topic, or the topic is none that is judged: dead letters, and
// those of other flows.
func (d *Desk) Declares(topic, typ string) bool {
	t, err := topics.Parse(topic)
	return err == nil && (t.Kind == topics.DeadLetters || t.Hop.Flow() != d.name) || sentBy(d.Services)[message{topic, typ}]
}
