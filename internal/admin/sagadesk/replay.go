package sagadesk

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// A Replayed is the result of folding a saga's log.
type Replayed struct {
	ID     string `json:"id"`
	Events int    `json:"events"`
	// Erased reports that the data of the saga was erased. Its log is not folded, since the data of its events is missing.
	Erased bool `json:"erased,omitempty"`
	// Difference is the first difference between the row and the folded state; "": they are equal.
	Difference string `json:"difference,omitempty"`
}

// Replay folds a saga's log with saga.Decide and compares the result with the row, both read in one snapshot. If the saga
// does not exist, the error wraps decisions.ErrNotFound.
func (d *Desk) Replay(ctx context.Context, id string) (Replayed, error) {
	var found *Replayed
	_, err := d.replay(ctx, "id = @id", pgx.NamedArgs{"id": id, "limit": 1}, func(r Replayed) error {
		found = &r
		return nil
	})
	if err == nil && found == nil {
		err = decisions.ErrNotFound
	}
	if err != nil {
		return Replayed{ID: id}, fmt.Errorf("replay saga %s: %w", id, explain(err))
	}
	return *found, nil
}

// replayed is the number of sagas that are read at a time, if their states are not large.
const replayed = 200

// ReplayAll replays all sagas whose id is after an id, "" for all, in the order of their ids, and calls do with each result.
// Memory is bounded whatever their number: a few hundred rows, and one event at a time. Sagas may change meanwhile.
func (d *Desk) ReplayAll(ctx context.Context, after string, do func(Replayed) error) error {
	for {
		last, err := d.replay(ctx, "id > @after", pgx.NamedArgs{"after": after, "limit": replayed}, do)
		if err != nil {
			return fmt.Errorf("replay sagas: %w", explain(err))
		}
		if last == "" {
			return nil
		}
		after = last
	}
}

// folding is a saga whose log is being folded.
type folding struct {
	id, definition, first string // id; then the hashes of the definition now and at the start
	row                   []byte
	version               int
	erased                bool

	d      *saga.Definition
	state  saga.State
	events int
	wrong  string
}

// replay reads rows and logs in one snapshot. It returns the last id, or "" if there was none.
func (d *Desk) replay(ctx context.Context, which string, args pgx.NamedArgs, do func(Replayed) error) (last string, err error) {
	read := `
SELECT s.id, s.definition, s.version, CASE WHEN octet_length(s.state::text) <= @most THEN s.state END,
       coalesce(jsonb_typeof(s.state) = 'object' AND s.state ? 'erased' AND s.state -> 'data' = '{}', false),
       coalesce((SELECT left(e.event ->> 'from', 1000) FROM troupe.saga_events AS e WHERE e.saga_id = s.id AND e.kind = 'migrated'
                 ORDER BY e.version LIMIT 1), s.definition)
FROM troupe.sagas AS s
WHERE ` + which + `
ORDER BY s.id
LIMIT @limit`
	const events = `
SELECT saga_id, version, ` + entryAt + `, CASE WHEN octet_length(event::text) <= @most THEN event END
FROM troupe.saga_events
WHERE saga_id = ANY (@ids)
ORDER BY saga_id, version`
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	var results []Replayed
	args["most"] = maxRead
	err = pgx.BeginTxFunc(ctx, d.cfg.Pool, snapshot, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, read, args)
		if err != nil {
			return err
		}
		sagas, _, err := admin.Collect(rows, replayed, func(row pgx.CollectableRow) (*folding, error) {
			f := new(folding)
			return f, row.Scan(&f.id, &f.definition, &f.version, &f.row, &f.erased, &f.first)
		})
		if err != nil || len(sagas) == 0 {
			return err
		}
		byID, ids := make(map[string]*folding), make([]string, len(sagas))
		for i, f := range sagas {
			byID[f.id], ids[i] = f, f.id
			if f.d, err = d.definitions.Of(ctx, f.first); err != nil {
				f.wrong = err.Error()
			}
			if f.row == nil {
				f.differs("the state: %s", errTooLarge)
			}
		}
		if rows, err = tx.Query(ctx, events, pgx.NamedArgs{"ids": ids, "most": maxRead}); err != nil {
			return err
		}
		var id string
		var e decisions.Entry
		var text []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &e.Version, &e.At, &text}, func() error {
			if byID[id].erased {
				byID[id].events++
				return nil
			}
			if text == nil {
				byID[id].differs("entry %d: %s", e.Version, errTooLarge)
			} else if e.Event, err = saga.ReadEvent(text); err != nil {
				byID[id].differs("entry %d cannot be read: %s", e.Version, err)
			}
			d.fold(ctx, byID[id], e)
			return nil
		})
		for _, f := range sagas {
			last = f.id
			if !f.erased {
				f.compare(ctx, d)
			}
			results = append(results, Replayed{f.id, f.events, f.erased, f.wrong})
		}
		return err
	})
	for _, r := range results {
		if err != nil {
			return last, err
		}
		err = do(r)
	}
	return last, err
}

func (f *folding) differs(format string, args ...any) {
	if f.wrong == "" {
		f.wrong = fmt.Sprintf(format, args...)
	}
}

// fold applies the next entry.
func (d *Desk) fold(ctx context.Context, f *folding, e decisions.Entry) {
	f.events++
	if f.wrong != "" {
		return
	}
	if e.Version != f.events {
		f.differs("the log has no entry %d: behind %d comes %d", f.events, f.events-1, e.Version)
		return
	}
	if e.Event.Kind == saga.Migrated {
		d.foldMove(ctx, f, e)
		return
	}
	s, fx := saga.Decide(f.d, f.state, e.Event, e.At)
	if why := fx.Ignored + fx.Refused; why != "" {
		f.differs("entry %d (%s) changes nothing: %s", e.Version, e.Event.Kind, why)
	}
	f.state = s
}

func (d *Desk) foldMove(ctx context.Context, f *folding, e decisions.Entry) {
	to, err := d.definitions.Of(ctx, e.Event.To)
	if err == nil {
		f.state, err = saga.Migrate(f.d, to, f.state)
	}
	if err != nil {
		f.differs("entry %d (migrated): %s", e.Version, err)
		return
	}
	f.d = to
}

// compare records the first difference between the folded state and the row.
func (f *folding) compare(ctx context.Context, d *Desk) {
	if f.wrong != "" {
		return
	}
	if f.events == 0 {
		f.differs("the log is empty")
		return
	}
	if f.events != f.version {
		f.differs("version: the row has %d, the log gives %d", f.version, f.events)
		return
	}
	now, err := d.definitions.Of(ctx, f.definition)
	var row saga.State
	if err == nil {
		row, err = now.ReadState(f.row)
	}
	if err != nil {
		f.differs("the row's state cannot be read: %s", err)
		return
	}
	for i, ss := range row.Steps[:min(len(row.Steps), len(f.state.Steps))] { // an earlier version did not store when it sent
		if ss.Sent.IsZero() {
			f.state.Steps[i].Sent = ss.Sent
		}
		if ss.BackSent.IsZero() {
			f.state.Steps[i].BackSent = ss.BackSent
		}
	}
	has, gives := whole(row), whole(f.state) // canonical: fields in their order, names sorted
	if has == gives {
		return
	}
	if where, a, b := differ("", tree(has), tree(gives)); a != b {
		f.differs("%s: the row has %s, the log gives %s", strings.TrimPrefix(where, "."), a, b)
	}
}

func tree(text string) (v any) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return err.Error()
	}
	return v
}

// differ returns the path of the first difference between two trees, with the value of each; if the two values are equal, so
// are the trees.
func differ(path string, a, b any) (where, left, right string) {
	if a, ok := a.(map[string]any); ok {
		if b, ok := b.(map[string]any); ok {
			names := slices.Sorted(maps.Keys(a))
			for name := range b {
				if _, both := a[name]; !both {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			for _, name := range names {
				x, inA := a[name]
				y, inB := b[name]
				switch {
				case !inA:
					return path + "." + name, "none", brief(y)
				case !inB:
					return path + "." + name, brief(x), "none"
				}
				if where, left, right := differ(path+"."+name, x, y); left != right {
					return where, left, right
				}
			}
			return "", "", ""
		}
	}
	if a, ok := a.([]any); ok {
		if b, ok := b.([]any); ok {
			for i := range min(len(a), len(b)) {
				if where, left, right := differ(fmt.Sprintf("%s[%d]", path, i), a[i], b[i]); left != right {
					return where, left, right
				}
			}
			if len(a) != len(b) {
				return path, fmt.Sprint(len(a), " entries"), fmt.Sprint(len(b), " entries")
			}
			return "", "", ""
		}
	}
	if x, y := whole(a), whole(b); x != y {
		if brief(a) == brief(b) { // they differ after the shown part
			return path, "another value", "one that begins alike"
		}
		return path, brief(a), brief(b)
	}
	return "", "", ""
}

// whole returns v as JSON.
func whole(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func brief(v any) string {
	text := whole(v)
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:77], "") + "..."
	}
	return text
}
