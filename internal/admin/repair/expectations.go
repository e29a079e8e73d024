package repair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// These are the statuses of an expectation. An expectation whose event came in time has no status, and is not listed.
const (
	Waiting = "waiting" // its time is not over
	Missing = "missing" // its time is over, and the event has not come
	Late    = "late"    // the event came after its time
)

// ExpectationStatuses returns the statuses.
func ExpectationStatuses() []string { return []string{Waiting, Missing, Late} }

// An Expectation is an event that a service of a flow expects for a key. Its JSON is the output of troupe expectation list.
type Expectation struct {
	Group     string     `json:"group"`
	Name      string     `json:"name"`
	Key       string     `json:"key"`
	Status    string     `json:"status"`
	AfterAt   time.Time  `json:"after_at"`   // when the message came with which the expectation began
	DueAt     time.Time  `json:"due_at"`     // when its time is over
	MissedAt  *time.Time `json:"missed_at"`  // when a member of the service recorded that its time is over
	RaisedAt  *time.Time `json:"raised_at"`  // when the event that reports it was written
	CameAt    *time.Time `json:"came_at"`    // when the expected event came
	AlertedAt *time.Time `json:"alerted_at"` // when the receiver accepted the last alert
	AlertAt   *time.Time `json:"alert_at"`   // when the next alert is posted; null: none waits
	AlertID   uuid.UUID  `json:"alert_id"`
}

// An ExpectationCount counts the expectations of a name.
type ExpectationCount struct {
	Group   string     `json:"group"`
	Name    string     `json:"name"`
	Waiting int        `json:"waiting"`
	Missing int        `json:"missing"`
	Late    int        `json:"late"`
	Oldest  *time.Time `json:"oldest"` // the earliest due_at of waiting and missing ones
}

// An ExpectationFilter selects expectations that match all fields that are set. The zero ExpectationFilter selects all.
type ExpectationFilter struct {
	Group  string
	Name   string
	Key    string
	Status string // one of ExpectationStatuses
}

// IsZero reports whether the filter selects every expectation.
func (f ExpectationFilter) IsZero() bool { return f == ExpectationFilter{} }

// Validate returns an error if a field has an invalid value. Every method with an ExpectationFilter calls it first.
func (f ExpectationFilter) Validate() error {
	if f.Status != "" && !slices.Contains(ExpectationStatuses(), f.Status) {
		return fmt.Errorf("status %q: want one of %s", f.Status, strings.Join(ExpectationStatuses(), ", "))
	}
	return nil
}

// recordedExpectations and openExpectations are each the condition of one index, so that expectations that were met in time are
// not read. hasTimes leaves out rows without the times that are listed: no program writes them, but the role of a service may.
const (
	recordedExpectations = "missed_at IS NOT NULL"
	openExpectations     = "missed_at IS NULL AND (met_at IS NULL OR raised_at IS NOT NULL)"
	hasTimes             = "after_at IS NOT NULL"
	expectationStatus    = "CASE WHEN missed_at IS NULL AND raised_at IS NULL THEN 'waiting' WHEN met_at IS NULL THEN 'missing' ELSE 'late' END"
)

// from returns the FROM clause, up to WHERE, and the conditions that follow it.
func (f ExpectationFilter) from() (string, conditions, error) {
	c := conditions{args: pgx.NamedArgs{}}
	if err := f.Validate(); err != nil {
		return "", c, err
	}
	for name, value := range map[string]string{"consumer_group": f.Group, "name": f.Name, "key": f.Key} {
		if value != "" {
			c.add(name+" = @"+name, name, value)
		}
	}
	if f.Status != "" {
		c.add(expectationStatus+" = @status", "status", f.Status)
	}
	const columns = "SELECT consumer_group, name, key, after_at, due_at, missed_at, raised_at, met_at, alerted_at, alert_at, alert_id FROM troupe.expectations WHERE " + hasTimes + " AND "
	from := columns + openExpectations
	if f.Status != Waiting {
		from = columns + recordedExpectations + " UNION ALL " + from
	}
	return "FROM (" + from + ") AS e\nWHERE ", c, nil
}

// Expectations lists waiting, missing and late expectations, the longest overdue first. next is the cursor of the following
// page; "": there is none.
func (d *Desk) Expectations(ctx context.Context, f ExpectationFilter, p Page) (all []Expectation, next string, err error) {
	all, next, err = d.expectations(ctx, f, p)
	if err != nil {
		return nil, "", fmt.Errorf("list expectations: %w", err)
	}
	return all, next, nil
}

func (d *Desk) expectations(ctx context.Context, f ExpectationFilter, p Page) (all []Expectation, next string, err error) {
	limit, err := p.limit()
	if err != nil {
		return nil, "", err
	}
	from, c, err := f.from()
	if err != nil {
		return nil, "", err
	}
	if p.After != "" {
		at, id, err := admin.ReadUUIDCursor(p.After)
		if err != nil {
			return nil, "", err
		}
		c.add("(due_at, alert_id) > (@after_at, @after_id)", "after_at", at)
		c.args["after_id"] = id
	}
	c.args["limit"] = limit + 1
	all, more, err := page(ctx, d, `
SELECT consumer_group, name, key, `+expectationStatus+`, after_at, due_at, missed_at, raised_at, met_at, alerted_at, alert_at, alert_id
`+from+c.String()+`
ORDER BY due_at, alert_id
LIMIT @limit`, c.args, limit, pgx.RowToStructByPos[Expectation])
	if more {
		last := all[len(all)-1]
		next = admin.TimeCursor(last.DueAt, last.AlertID.String())
	}
	return all, next, err
}

// maxExpectationNames limits the names that CountExpectations returns.
const maxExpectationNames = 1000

// CountExpectations counts the expectations that Expectations lists, by group and name. The name with the most missing events
// is first.
func (d *Desk) CountExpectations(ctx context.Context, f ExpectationFilter) ([]ExpectationCount, error) {
	from, c, err := f.from()
	if err == nil {
		c.args["limit"] = maxExpectationNames
		var all []ExpectationCount
		all, _, err = page(ctx, d, `
SELECT consumer_group, name, count(*) FILTER (WHERE status = 'waiting'), count(*) FILTER (WHERE status = 'missing') AS missing,
       count(*) FILTER (WHERE status = 'late'), min(due_at) FILTER (WHERE status <> 'late')
FROM (SELECT consumer_group, name, due_at, `+expectationStatus+` AS status `+from+c.String()+`) AS s
GROUP BY consumer_group, name
ORDER BY missing DESC, consumer_group, name
LIMIT @limit`, c.args, maxExpectationNames, pgx.RowToStructByPos[ExpectationCount])
		if err == nil {
			return all, nil
		}
	}
	return nil, fmt.Errorf("count expectations: %w", err)
}
