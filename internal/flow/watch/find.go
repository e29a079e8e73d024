package watch

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/admin"
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

// Statuses lists all statuses. A flow with one of the last two has ended.
var Statuses = []Status{UnderWay, Deviant, Parked, Compensated, Completed}

// Kinds lists all kinds of findings.
var Kinds = []Kind{Missing, Late, Stuck, Unexpected}

// A Filter selects flows that match all fields that are set. The zero value selects all.
type Filter struct {
	Statuses []Status // one of these
	// Found selects flows with a finding of this kind. For Unexpected it selects, per topic and type, the flow of the last such
	// message.
	Found Kind
	// Key is the business key of one of the flow's messages.
	Key string
	// BeganAfter is inclusive, BeganBefore is exclusive.
	BeganAfter, BeganBefore time.Time
}

// Validate returns an error if a field has a value that no flow can match.
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

// maxLooked is the minimum number of flows that are read for one page, since the filter may match few of them.
const maxLooked = 150

// Find returns a page of at most limit flows (1 to 1000). They are ordered by their begin, the latest first; with Filter.Found,
// or with Deviant as the only status, by their latest finding. after is the cursor that the previous page returned, "" for the
// first page; next is the cursor of the next page, "" after the last. The status of a flow depends on all of its messages, so
// Find reads 150 flows, or limit flows if that is more, and may return fewer than limit, or none, together with a cursor.
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

// A mark is a position in a list.
type mark struct {
	at time.Time
	id uuid.UUID
}

func (m mark) String() string { return admin.TimeCursor(m.at, m.id.String()) }

var latest = mark{at: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), id: uuid.Max}

func readMark(text string) (m mark, err error) {
	if text == "" {
		return latest, nil
	}
	m.at, m.id, err = admin.ReadUUIDCursor(text)
	return m, err
}

// candidates returns flows after a mark that the filter may match. It applies the conditions that the database can evaluate.
func (d *Desk) candidates(ctx context.Context, f Filter, after mark, most int) ([]mark, error) {
	args := pgx.NamedArgs{"flow": d.flow, "at": after.at, "id": after.id, "most": most, "key": string(textOf([]byte(f.Key)))}
	sql := findNewest
	if f.Found == "" && slices.Equal(f.Statuses, []Status{Deviant}) { // only findings make a flow deviant
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
	// Plan the statement each time: a filter that matches few flows needs another plan than one that matches nearly all.
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

// rulesOfKind returns the numbers of the rules of a kind; of all rules if kind is "".
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

// Names returns the names of the flows that are watched in a database.
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

// Declares reports whether a service declares to send a type on a topic. It is also true for topics that are not judged: dead
// letters, and topics of other flows.
func (d *Desk) Declares(topic, typ string) bool {
	t, err := topics.Parse(topic)
	return err == nil && (t.Kind == topics.DeadLetters || t.Hop.Flow() != d.name) || sentBy(d.Services)[message{topic, typ}]
}
