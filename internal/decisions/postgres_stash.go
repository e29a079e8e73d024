package decisions

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/saga"
)

var (
	//go:embed sql/measure_stash.sql
	measureStash string
	//go:embed sql/insert_stash.sql
	insertStash string
	//go:embed sql/expire_stash.sql
	expireStash string
	//go:embed sql/keep_stash.sql
	keepStash string
	//go:embed sql/find_kept.sql
	findKept string
	//go:embed sql/find_stash.sql
	findStash string
	//go:embed sql/delete_kept.sql
	deleteKept string
	//go:embed sql/delete_stash.sql
	deleteStash string
	//go:embed sql/drop_stash.sql
	dropStash string
	//go:embed sql/open_stash.sql
	openStash string
	//go:embed sql/prune_stash.sql
	pruneStash string
)

// Stash inserts events. For each of them it deletes up to two expired ones.
func (p *Postgres) Stash(ctx context.Context, events []Stashed) error {
	var c associationColumns
	var messages, texts []string
	var shared []bool
	var expires []time.Time
	for _, e := range events {
		c.add(e.Association)
		text, err := json.Marshal(e.Event)
		if err != nil {
			return err
		}
		messages, texts = append(messages, pgtext.Indexable(e.message())), append(texts, string(text))
		c.ids, shared, expires = append(c.ids, storedID(e.For)), append(shared, e.Shared), append(expires, e.Expires)
	}
	args := c.args()
	args["ids"], args["shared"], args["messages"], args["events"], args["expires"] = c.ids, shared, messages, texts, expires
	batch := &pgx.Batch{}
	batch.Queue(pruneStash, pg.Args{"sagas": c.sagas, "group": p.group, "limit": 2 * len(events)}).Query(p.readExpired)
	batch.Queue(insertStash, args)
	return p.tx.SendBatch(ctx, batch).Close()
}

// readExpired calls p.expired for each row of a statement that has deleted expired events.
func (p *Postgres) readExpired(rows pgx.Rows) error {
	expired, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Stashed, error) { return scanStashed(row) })
	for _, e := range expired {
		p.expired(e)
	}
	return err
}

// StashBytes sums the sizes of the events as Stash has stored them.
func (p *Postgres) StashBytes(ctx context.Context, a Association, ids []string, e saga.Event) (map[string]int64, error) {
	byStored := make(map[string]string, len(ids))
	stored := make([]string, len(ids))
	for i, id := range ids {
		stored[i] = storedID(id)
		byStored[stored[i]] = id
	}
	args := pg.Args{"saga": a.Saga, "variable": a.Variable, "value": pgtext.Indexable(a.Value), "group": p.group, "ids": stored, "message": pgtext.Indexable(messageOf(e))}
	rows, err := p.tx.Query(ctx, measureStash, args)
	if err != nil {
		return nil, err
	}
	bytes := make(map[string]int64, len(ids))
	var id string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { bytes[byStored[id]] = n; return nil })
	return bytes, err
}

// storedID returns the text by which troupe.saga_stash refers to saga id: a long id and a value together do not fit into an index.
func storedID(id string) string {
	if id == "" {
		return ""
	}
	return pgtext.Indexable(id)
}

func (p *Postgres) stashArgs(as []Association, id string) pg.Args {
	columns := columnsOf(as)
	args := columns.args()
	args["group"], args["id"] = p.group, storedID(id)
	return args
}

// FindStashed locks the events for the next saga that it returns: the events for saga id change only with the saga. It deletes the expired ones
// of fresh, since they would count as unexpired once the saga is saved.
func (p *Postgres) FindStashed(ctx context.Context, id string, fresh []Association, q StashQuery) (found []Stashed, err error) {
	batch := &pgx.Batch{}
	queueIsolation(batch)
	if len(fresh) > 0 {
		batch.Queue(expireStash, p.stashArgs(fresh, id)).Query(p.readExpired)
		batch.Queue(keepStash, p.stashArgs(fresh, id))
	}
	var kept, next []Stashed
	batch.Queue(findKept, q.args(id)).Query(func(rows pgx.Rows) (err error) {
		kept, err = collectStashed(rows, q.Wanted)
		for i := range kept {
			kept[i].For = id
		}
		return err
	})
	batch.Queue(findStash, q.args(id)).Query(func(rows pgx.Rows) (err error) {
		next, err = collectStashed(rows, q.Wanted)
		return err
	})
	err = p.tx.SendBatch(ctx, batch).Close()
	return q.inOrder(kept, next), err
}

// args returns the arguments of find_kept.sql, find_stash.sql and read_stash.sql.
func (q StashQuery) args(id string) pg.Args {
	var c associationColumns
	var prefixes []string // nil: all
	if q.Wanted != nil {
		prefixes = []string{}
	}
	for _, w := range q.Wanted {
		c.add(w.Association)
		prefixes = append(prefixes, prefixOf(w.Hop, w.Type))
	}
	args := c.args()
	args["id"], args["prefixes"], args["after"], args["most"] = storedID(id), prefixes, q.After, nil
	if q.Limit > 0 {
		args["most"] = q.Limit
	}
	return args
}

// inOrder returns the events of both lists in the order in which they were stashed, at most the query's limit.
func (q StashQuery) inOrder(kept, next []Stashed) []Stashed {
	all := slices.Concat(kept, next)
	slices.SortFunc(all, func(a, b Stashed) int { return cmp.Compare(a.Position, b.Position) })
	if q.Limit > 0 && len(all) > q.Limit {
		all = all[:q.Limit]
	}
	return all
}

// collectStashed reads rows of find_kept.sql or find_stash.sql. A row has the hash of a long value. If an association of wanted has it, the event
// gets the value itself.
func collectStashed(rows pgx.Rows, wanted []Wanted) ([]Stashed, error) {
	given := make(map[Association]Association, len(wanted))
	for _, w := range wanted {
		given[stored(w.Association)] = w.Association
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Stashed, err error) {
		var id string
		var shared bool
		var position int64
		e, err = scanStashed(row, &id, &shared, &position)
		if a, is := given[e.Association]; is {
			e.Association = a
		}
		e.For, e.Shared, e.Position = id, shared, position
		return e, err
	})
}

// scanStashed reads a row with an event, and the columns that follow it into more.
func scanStashed(row pgx.CollectableRow, more ...any) (s Stashed, err error) {
	var text []byte
	if err := row.Scan(append([]any{&s.Saga, &s.Variable, &s.Value, &text}, more...)...); err != nil {
		return s, err
	}
	s.Event, err = saga.ReadEvent(text)
	return s, err
}

// DropStashed deletes rows of troupe.saga_stash.
func (p *Postgres) DropStashed(ctx context.Context, id string, as []Association, e saga.Event) error {
	message := pgtext.Indexable(messageOf(e))
	batch := &pgx.Batch{}
	batch.Queue(deleteKept, pg.Args{"id": storedID(id), "message": message})
	for _, a := range as {
		batch.Queue(deleteStash, pg.Args{"saga": a.Saga, "variable": a.Variable, "value": pgtext.Indexable(a.Value), "message": message})
	}
	return p.tx.SendBatch(ctx, batch).Close()
}

// LeftBy reads the stored values: a long one is its hash, by which Associated and Guard find the same sagas.
func (p *Postgres) LeftBy(ctx context.Context, id string) (left []Association, err error) {
	const others = "SELECT DISTINCT saga, variable, value FROM troupe.saga_stash WHERE saga_id = @id AND saga_id <> '' AND variable <> '' AND NOT shared ORDER BY saga, variable, value"
	batch := &pgx.Batch{}
	queueIsolation(batch)
	batch.Queue(others, pg.Args{"id": storedID(id)}).Query(func(rows pgx.Rows) (err error) {
		left, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Association])
		return err
	})
	err = p.tx.SendBatch(ctx, batch).Close()
	return left, err
}

// OpenStashed updates rows of troupe.saga_stash.
func (p *Postgres) OpenStashed(ctx context.Context, id string, messages []saga.Event, after time.Duration) error {
	var ids []string // nil: all
	for _, e := range messages {
		ids = append(ids, pgtext.Indexable(messageOf(e)))
	}
	_, err := p.tx.Exec(ctx, openStash, pg.Args{"id": storedID(id), "messages": ids, "seconds": after.Seconds()})
	return err
}
