package sagadesk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/saga"
)

// A Row is one saga of a list.
type Row struct {
	ID   string `json:"id"`
	Saga string `json:"saga"`
	Key  string `json:"key"`
	// Hop and Group name the coordinator.
	Hop   string `json:"hop"`
	Group string `json:"group"`
	// Definition is the hash of the definition that it runs on.
	Definition string      `json:"definition"`
	Version    int         `json:"version"`
	Status     saga.Status `json:"status"`
	// Steps are the names of the steps that await something or are stuck.
	Steps     []string   `json:"steps"`
	Reason    string     `json:"reason,omitempty"`
	WakeAt    *time.Time `json:"wake_at,omitempty"` // when its deadlines are checked next
	StartedAt time.Time  `json:"started_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

const rowColumns = `id, saga, key, hop, consumer_group, definition, version, status, coalesce(string_to_array(nullif(steps, ''), ' '), '{}'),
       coalesce(reason, ''), wake_at, started_at, updated_at, ended_at`

// fields returns the scan targets of rowColumns.
func (r *Row) fields() []any {
	return []any{
		&r.ID, &r.Saga, &r.Key, &r.Hop, &r.Group, &r.Definition, &r.Version, &r.Status, &r.Steps, &r.Reason, &r.WakeAt, &r.StartedAt,
		&r.UpdatedAt, &r.EndedAt,
	}
}

// A Filter selects the sagas that match every field that is set. The zero value selects all.
type Filter struct {
	Saga     string        // the type's name
	Statuses []saga.Status // one of these
	Key      string
	// Step selects sagas in which this step awaits something or is stuck. It matches no saga that has ended.
	Step string
	// Definition is a definition's hash. If Statuses is not set, it matches no saga that has ended; if Statuses is set, all
	// sagas of these statuses are searched for it.
	Definition string
	// Variable and Value select by an association: a variable by which events find sagas, with its value as text. They match
	// no saga that has ended, since its associations are deleted. They also match a saga that had the value before it was set
	// to another one.
	Variable, Value string
	// StartedAfter is inclusive, StartedBefore is not.
	StartedAfter, StartedBefore time.Time
	// NotMovedSince selects sagas that have not ended and whose row has not changed since then.
	NotMovedSince time.Time

	forms map[string][]string // the hashes of definitions, one of which the saga must have, with steps, one of which must be under way
}

// Validate returns an error if no saga could ever match.
func (f Filter) Validate() error {
	for _, s := range f.Statuses {
		if !slices.Contains(decisions.Statuses, s) {
			return fmt.Errorf("status %q: want one of %s", s, join(decisions.Statuses))
		}
	}
	if (f.Variable == "") != (f.Value == "") {
		return fmt.Errorf("variable %q with the value %q: want both, or neither", f.Variable, f.Value)
	}
	return nil
}

func join(all []saga.Status) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// A Page selects a part of a list.
type Page struct {
	// Limit is the maximum number of sagas: 1 to 10,000. Default 50.
	Limit int
	// After is the cursor that List returned with the previous page; "": the first page.
	After string
	// Oldest lists the sagas by start, the first one first. Default: the last one first.
	Oldest bool
}

const maxPage = 10_000

// Validate returns an error if Limit or After is invalid.
func (p Page) Validate() error {
	_, err := p.limit()
	if err == nil && p.After != "" {
		_, _, err = admin.ReadTimeCursor(p.After)
	}
	return err
}

func (p Page) limit() (int, error) {
	if p.Limit < 0 || p.Limit > maxPage {
		return 0, fmt.Errorf("limit %d: want 1 to %d", p.Limit, maxPage)
	}
	if p.Limit == 0 {
		return 50, nil
	}
	return p.Limit, nil
}

// List returns sagas in the order in which they started. next is the cursor for the next page; "": this was the last one. The
// cost of a page depends on its length, not on the number of sagas or of earlier pages. Key, Variable, Step, NotMovedSince
// and Definition add the cost of their search: through the sagas of that key or value, or through all that have not ended.
func (d *Desk) List(ctx context.Context, f Filter, p Page) (list []Row, next string, err error) {
	sql, args, err := listing(f, p)
	if err != nil {
		return nil, "", fmt.Errorf("list sagas: %w", err)
	}
	// Planned for each call, with these arguments: one plan for all arguments is a bad one for most.
	rows, err := d.cfg.Pool.Query(ctx, sql, pgx.QueryExecModeExec, args)
	var more bool
	if err == nil {
		limit, _ := p.limit()
		list, more, err = admin.Collect(rows, limit, func(row pgx.CollectableRow) (r Row, err error) { return r, row.Scan(r.fields()...) })
	}
	if err != nil {
		return nil, "", fmt.Errorf("list sagas: %w", explain(err))
	}
	if more {
		last := list[len(list)-1]
		next = admin.TimeCursor(last.StartedAt, last.ID)
	}
	return list, next, nil
}

// listing returns List's statement. Each status is a subquery of its own, since an index has the sagas of one status in
// order; none returns more than a page, so sorting their union costs little.
func listing(f Filter, p Page) (sql string, args pgx.NamedArgs, err error) {
	limit, err := p.limit()
	if err = errors.Join(err, f.Validate()); err != nil {
		return "", nil, err
	}
	args = pgx.NamedArgs{}
	var conditions []string
	add := func(set bool, condition, name string, value any) {
		if set {
			conditions, args[name] = append(conditions, condition), value
		}
	}
	order, than := "DESC", "<"
	if p.Oldest {
		order, than = "ASC", ">"
	}
	add(f.Saga != "", "saga = @saga", "saga", f.Saga)
	// As ids, for the type of each stored definition: the primary key is the one index that contains all sagas.
	add(f.Key != "", "id IN (SELECT saga || '/' || @key FROM troupe.saga_definitions)", "key", f.Key)
	// For the type of each stored definition, since the index begins with the type.
	add(f.Variable != "", "id IN (SELECT a.saga_id FROM troupe.saga_associations AS a WHERE a.saga IN (SELECT d.saga FROM troupe.saga_definitions AS d) "+
		"AND a.variable = @variable AND a.value = @value)", "variable", f.Variable)
	if f.Variable != "" {
		args["value"] = pgtext.Indexable(f.Value)
	}
	add(f.Step != "", "@step = ANY (string_to_array(steps, ' '))", "step", f.Step)
	add(f.Definition != "", "definition = @definition", "definition", f.Definition)
	add(!f.StartedAfter.IsZero(), "started_at >= @started_after", "started_after", f.StartedAfter)
	add(!f.StartedBefore.IsZero(), "started_at < @started_before", "started_before", f.StartedBefore)
	// A saga that has not changed since then has not started since then either, and started_at is indexed.
	add(!f.NotMovedSince.IsZero(), "updated_at < @not_moved_since AND started_at < @not_moved_since", "not_moved_since", f.NotMovedSince)
	forms, _ := json.Marshal(f.forms) // texts only
	add(len(f.forms) > 0, "@forms::jsonb -> definition ?| string_to_array(steps, ' ')", "forms", string(forms))
	if p.After != "" {
		at, id, err := admin.ReadTimeCursor(p.After)
		if err != nil {
			return "", nil, err
		}
		add(true, "(started_at, id) "+than+" (@after_at, @after_id)", "after_at", at)
		args["after_id"] = id
	}
	inOrder := fmt.Sprintf("\nORDER BY started_at %s, id %s\nLIMIT %d", order, order, limit+1)
	statuses := f.statuses()
	if len(statuses) == 0 {
		return "SELECT " + rowColumns + arm(conditions) + inOrder, args, nil
	}
	var arms []string
	for _, status := range statuses {
		arms = append(arms, "(SELECT *"+arm(append(slices.Clip(conditions), "status = '"+string(status)+"'"))+inOrder+")") // validated
	}
	return "SELECT " + rowColumns + "\nFROM (" + strings.Join(arms, "\nUNION ALL ") + ") AS s" + inOrder, args, nil
}

// statuses returns the statuses that need a subquery: none if Key or Variable leaves few sagas anyway.
func (f Filter) statuses() []saga.Status {
	all := f.Statuses
	if len(all) == 0 && f.Key == "" && f.Variable == "" {
		all = decisions.Statuses
	}
	if f.Definition != "" && len(f.Statuses) == 0 {
		all = decisions.Open
	}
	if f.Step == "" && f.NotMovedSince.IsZero() {
		return all
	}
	if len(all) == 0 {
		return decisions.Open
	}
	return slices.DeleteFunc(slices.Clone(all), func(s saga.Status) bool { return !slices.Contains(decisions.Open, s) })
}

func arm(conditions []string) string {
	from := "\nFROM troupe.sagas"
	if len(conditions) == 0 {
		return from
	}
	return from + "\nWHERE " + strings.Join(conditions, "\n  AND ")
}

// entryAt selects the time of an entry, or Go's zero time in place of one that its writer made up and that Go or JSON cannot have.
const entryAt = `CASE WHEN at BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 00:00Z' THEN at ELSE '0001-01-01 00:00Z' END`

// Log returns the entries of a saga's log with a version above after, in order: at most limit of them (1 to 10,000), and fewer if they
// have admin.PageBytes before.
func (d *Desk) Log(ctx context.Context, id string, after, limit int) ([]decisions.Entry, error) {
	return d.log(ctx, id, "ASC", after, limit)
}

// LogEnd returns the last entries of a saga's log, in order: at most limit of them (1 to 10,000), and fewer if they have
// admin.PageBytes before, since each entry has the fields of a whole message.
func (d *Desk) LogEnd(ctx context.Context, id string, limit int) ([]decisions.Entry, error) {
	log, err := d.log(ctx, id, "DESC", 0, limit)
	slices.Reverse(log)
	return log, err
}

// log reads entries in an order: "ASC" or "DESC".
func (d *Desk) log(ctx context.Context, id, order string, after, limit int) ([]decisions.Entry, error) {
	if limit < 1 || limit > maxPage {
		return nil, fmt.Errorf("log of saga %s: limit %d: want 1 to %d", id, limit, maxPage)
	}
	read := `
SELECT version, ` + entryAt + `, CASE WHEN readable THEN event END, CASE WHEN readable THEN moments END, recorded_at, coalesce(role, '')
FROM troupe.saga_events
CROSS JOIN LATERAL (SELECT octet_length(event::text)::bigint + octet_length(moments::text) <= @most AS readable OFFSET 0) AS size -- OFFSET: computed once
WHERE saga_id = @id
  AND version > @after
ORDER BY version ` + order + `
LIMIT @limit`
	rows, err := d.cfg.Pool.Query(ctx, read, pgx.NamedArgs{"id": id, "after": after, "limit": limit, "most": maxRead})
	if err != nil {
		return nil, fmt.Errorf("log of saga %s: %w", id, explain(err))
	}
	log, _, err := admin.Collect(rows, limit, func(row pgx.CollectableRow) (e decisions.Entry, err error) {
		var event []byte
		var recorded *time.Time
		if err := row.Scan(&e.Version, &e.At, &event, &e.Moments, &recorded, &e.Role); err != nil {
			return e, err
		}
		if recorded != nil {
			e.RecordedAt = *recorded
		}
		if event == nil { // the column has no null
			return e, fmt.Errorf("version %d: %w", e.Version, errTooLarge)
		}
		e.Event, err = saga.ReadEvent(event)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("log of saga %s: %w", id, explain(err))
	}
	return log, nil
}

// A Lock is one saga's entry in the queue for a lock.
type Lock struct {
	Name string `json:"name"`
	Saga string `json:"saga"` // its id
	// Has is true if the saga holds the lock, false if it waits.
	Has   bool      `json:"has"`
	Since time.Time `json:"since"` // when it began to wait, or got the lock at once
}

// Locks lists the sagas that hold locks and, after each of them, the sagas that wait for it, by the lock's name, at most
// limit of them (1 to 10,000), and fewer if they have admin.PageBytes before: the key of a saga may be long. more reports whether there are
// more. It begins after the lock of the name after; "": with the first. A lock's name is the type of saga, a slash, and the value of Lock of
// its definition.
func (d *Desk) Locks(ctx context.Context, after string, limit int) (locks []Lock, more bool, err error) {
	if limit < 1 || limit > maxPage {
		return nil, false, fmt.Errorf("locks: limit %d: want 1 to %d", limit, maxPage)
	}
	const list = `
SELECT name, saga_id,
       NOT EXISTS (SELECT FROM troupe.saga_locks AS o WHERE o.name = l.name AND o.position < l.position), since
FROM troupe.saga_locks AS l
WHERE name > @after
ORDER BY name, position
LIMIT @limit`
	rows, err := d.cfg.Pool.Query(ctx, list, pgx.NamedArgs{"after": after, "limit": limit + 1})
	if err == nil {
		locks, more, err = admin.Collect(rows, limit, pgx.RowToStructByPos[Lock])
	}
	if err != nil {
		return nil, false, fmt.Errorf("locks: %w", explain(err))
	}
	return locks, more, nil
}

// A StashCount is the number of events that wait for the next saga of one type by one variable; an empty Variable means the key.
type StashCount struct {
	Saga     string    `json:"saga"`
	Variable string    `json:"variable"`
	Count    int       `json:"count"`
	Expires  time.Time `json:"expires"` // when the first of them expires
}

// Stash counts the stashed events that have not expired, as Stats does, of the first 10,000 variables.
func (d *Desk) Stash(ctx context.Context) ([]StashCount, error) {
	const list = `
SELECT saga, variable, count(*), min(expires_at)
FROM troupe.saga_stash
WHERE expires_at > clock_timestamp()
GROUP BY saga, variable
ORDER BY saga, variable
LIMIT 10000`
	return collect[StashCount](ctx, d, "stash", list, nil)
}

// A Count is the number of sagas of one type in one status.
type Count struct {
	Saga   string      `json:"saga"`
	Status saga.Status `json:"status"`
	Count  int         `json:"count"`
}

// Counts counts all sagas. It scans a whole index.
func (d *Desk) Counts(ctx context.Context) ([]Count, error) {
	const list = `
SELECT saga, status, count(*)
FROM troupe.sagas
GROUP BY saga, status
ORDER BY saga, status`
	return collect[Count](ctx, d, "count sagas", list, nil)
}

// A Use is a stored definition, with the number of sagas that run on it.
type Use struct {
	Saga       string    `json:"saga"`
	Version    int       `json:"version"`
	Definition string    `json:"definition"` // hash
	StoredAt   time.Time `json:"stored_at"`
	Open       int       `json:"open"` // sagas that have not ended
}

// Definitions lists the stored definitions by saga, the latest first, at most 10,000.
func (d *Desk) Definitions(ctx context.Context) ([]Use, error) {
	const list = `
SELECT d.saga, d.version, d.hash, d.created_at, coalesce(n.n, 0)
FROM troupe.saga_definitions AS d
LEFT JOIN (
  SELECT definition, count(*) AS n
  FROM troupe.sagas
  WHERE status IN ('waiting', 'running', 'compensating', 'parked')
  GROUP BY definition) AS n ON n.definition = d.hash
ORDER BY d.saga, d.created_at DESC, d.hash
LIMIT 10000`
	return collect[Use](ctx, d, "definitions", list, nil)
}

// collect runs a statement whose columns are T's fields.
func collect[T any](ctx context.Context, d *Desk, what, sql string, args pgx.NamedArgs) ([]T, error) {
	rows, err := d.cfg.Pool.Query(ctx, sql, args)
	var all []T
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, explain(err))
	}
	return all, nil
}
