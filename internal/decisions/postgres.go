package decisions

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
)

var (
	//go:embed sql/load_sagas.sql
	loadSagas string
	//go:embed sql/insert_sagas.sql
	insertSagas string
	//go:embed sql/update_sagas.sql
	updateSagas string
	//go:embed sql/insert_events.sql
	insertEvents string
	//go:embed sql/insert_associations.sql
	insertAssociations string
	//go:embed sql/delete_associations.sql
	deleteAssociations string
	//go:embed sql/delete_former.sql
	deleteFormer string
	//go:embed sql/find_associated.sql
	findAssociated string
	//go:embed sql/guard.sql
	guard string
	//go:embed sql/insert_lock.sql
	insertLock string
	//go:embed sql/has_lock.sql
	hasLock string
	//go:embed sql/delete_lock.sql
	deleteLock string
	//go:embed sql/next_lock.sql
	nextLock string
)

// guardClass is the first half of the keys of the advisory locks that Guard and Lock take. The second half is a hash.
const guardClass = 0x74727573 // "trus"

// Postgres stores sagas in the tables troupe.sagas, saga_events, saga_associations, saga_stash and saga_locks. Its clock is the
// database's. If tx can queue statements, Save queues its own. All other methods send theirs at once.
type Postgres struct {
	tx pgx.Tx
	// hop, group and content are the coordinator's hop and group, and the content type of its messages. They are stored with each saga:
	// package sagadesk reads them, to write messages in the coordinator's name.
	hop, group, content string
	now                 time.Time
	reportConflict      func(error) error // called with each error of a statement that Save has queued
	expired             func(Stashed)     // called with each expired event that Stash or FindStashed deletes, of which it has only the hop and type
	withFirstLoad       *pgx.Batch        // sent with the first Load, which sets it to nil; nil: nothing is sent
	loaded              int               // bytes of the states that Load has read
}

// maxLoaded limits the states of several sagas that one transaction reads, in bytes. They take several times as much in memory, and a
// producer of events that start sagas chooses how many have one value, by which an event finds all of them.
const maxLoaded = 128 << 20

var _ Store = (*Postgres)(nil)

// NewPostgres returns a store that works in tx, for the sagas of the coordinator of hop and group.
func NewPostgres(tx pgx.Tx, hop, group string) *Postgres {
	return &Postgres{tx: tx, hop: hop, group: group, content: envelope.JSON, reportConflict: conflict, expired: func(Stashed) {}}
}

const clock = "SELECT clock_timestamp()"

// Now returns the time by the database's clock at the last Load. If there was no Load, the first call reads the clock, and later calls return the
// same time.
func (p *Postgres) Now(ctx context.Context) (time.Time, error) {
	if !p.now.IsZero() {
		return p.now, nil
	}
	err := p.tx.QueryRow(ctx, clock).Scan(&p.now)
	return p.now, err
}

// Load locks the rows in the order of their ids. For a saga of another coordinator in the same database it returns the owner. It reads
// the clock after it has the locks, so that no decision is dated before a change for which Load has waited.
func (p *Postgres) Load(ctx context.Context, ids []string) (found []Record, err error) {
	batch := &pgx.Batch{}
	if p.withFirstLoad != nil {
		batch, p.withFirstLoad = p.withFirstLoad, nil
	}
	batch.Queue(loadSagas, pg.Args{"ids": ids, "hop": p.hop, "group": p.group}).Query(func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, p.record)
		return err
	})
	batch.Queue(clock).QueryRow(func(row pgx.Row) error { return row.Scan(&p.now) })
	err = p.tx.SendBatch(ctx, batch).Close()
	return found, err
}

// record reads a row. The first one of the transaction has any size, so that each saga can be decided on alone.
func (p *Postgres) record(row pgx.CollectableRow) (r Record, err error) {
	if size := len(row.RawValues()[2]); p.loaded > 0 && p.loaded+size > maxLoaded {
		return r, unreadable{fmt.Errorf("the sagas of this transaction have more than %d MiB of variables and events", maxLoaded>>20)}
	}
	p.loaded += len(row.RawValues()[2])
	var wake *time.Time
	err = row.Scan(&r.ID, &r.Definition, &r.State, &wake, &r.Owner)
	if wake != nil {
		r.WakeAt = *wake
	}
	return r, err
}

// Save writes all changes in one batch: for each table at most one INSERT, one UPDATE and one DELETE, however many sagas there are. If
// tx can queue statements, they are sent with its next statement, and their errors come then.
func (p *Postgres) Save(ctx context.Context, changes []Change) error {
	var fresh, changed sagaColumns
	var events eventColumns
	var found, former associationColumns
	var ended, keepers []string
	events.grow(len(changes))
	for _, c := range changes {
		to := &changed
		if c.Was == 0 {
			to = &fresh
		}
		if to.ids == nil {
			to.grow(len(changes))
		}
		if err := to.add(c); err != nil {
			return err
		}
		if err := events.add(c); err != nil {
			return err
		}
		if c.State.Ended() {
			ended, keepers = append(ended, c.State.ID()), append(keepers, storedID(c.State.ID()))
			continue
		}
		for _, a := range c.Associations {
			found.add(a)
			found.ids = append(found.ids, c.State.ID())
		}
		for _, a := range c.Former {
			former.add(a)
			former.ids = append(former.ids, c.State.ID())
		}
	}
	batch := &pgx.Batch{}
	if len(fresh.ids) > 0 {
		args := fresh.args()
		args["hop"], args["group"], args["content"], args["class"] = p.hop, p.group, p.content, int32(guardClass)
		batch.Queue(insertSagas, args)
	}
	if len(changed.ids) > 0 {
		batch.Queue(updateSagas, changed.args()).Exec(func(tag pgconn.CommandTag) error {
			if int(tag.RowsAffected()) != len(changed.ids) {
				return ErrConflict
			}
			return nil
		})
	}
	if len(events.ids) > 0 {
		batch.Queue(insertEvents, events.args())
	}
	if len(former.ids) > 0 {
		args := former.args()
		args["ids"] = former.ids
		batch.Queue(deleteFormer, args)
	}
	if len(found.ids) > 0 {
		args := found.args()
		args["ids"] = found.ids
		batch.Queue(insertAssociations, args)
	}
	if len(ended) > 0 {
		batch.Queue(deleteAssociations, pg.Args{"ids": ended, "limit": len(ended)})
		batch.Queue(dropStash, pg.Args{"ids": keepers, "limit": len(keepers)})
	}
	for _, q := range batch.QueuedQueries {
		read := q.Fn
		q.Fn = func(results pgx.BatchResults) (err error) {
			if read != nil {
				return p.reportConflict(read(results))
			}
			_, err = results.Exec()
			return p.reportConflict(err)
		}
	}
	return queue(ctx, p.tx, batch)
}

// queue adds statements to tx, which sends them with its next statement. If tx cannot queue, they are sent at once.
func queue(ctx context.Context, tx pgx.Tx, batch *pgx.Batch) error {
	if batch.Len() == 0 {
		return nil
	}
	if q, ok := tx.(interface{ QueueBatch(*pgx.Batch) error }); ok {
		return q.QueueBatch(batch)
	}
	return conflict(tx.SendBatch(ctx, batch).Close())
}

// conflict wraps an error in ErrConflict if a concurrent transaction caused it: both wrote the same saga (a unique violation in schema
// troupe), or Postgres aborted this one because of a deadlock or a serialization failure.
func conflict(err error) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || errors.Is(err, ErrConflict) {
		return err
	}
	switch {
	case refused.Code == "23505" && refused.SchemaName == "troupe", refused.Code == "40P01", refused.Code == "40001":
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// Associated reads troupe.saga_associations and troupe.saga_stash. Save deletes the associations of a saga that ends.
func (p *Postgres) Associated(ctx context.Context, as []Association) (found map[Association][]string, stashed map[Association]bool, err error) {
	columns := columnsOf(as)
	rows, err := p.tx.Query(ctx, findAssociated, columns.args())
	if err != nil {
		return nil, nil, err
	}
	stored := make(map[Association][]string)
	var a Association
	var id string
	_, err = pgx.ForEachRow(rows, []any{&a.Saga, &a.Variable, &a.Value, &id}, func() error {
		stored[a] = append(stored[a], id)
		return nil
	})
	found, stashed = make(map[Association][]string, len(stored)), make(map[Association]bool)
	for _, a := range as {
		ids := stored[Association{a.Saga, a.Variable, pgtext.Indexable(a.Value)}]
		if len(ids) > 0 && ids[0] == "" { // the row that stands for stashed events
			stashed[a], ids = true, ids[1:]
		}
		if len(ids) > 0 {
			found[a] = ids
		}
	}
	return found, stashed, err
}

// Guard takes an advisory lock for each association: for a variable on the value as it is stored, for a key on the key itself.
// insert_sagas.sql takes the same lock on the key.
func (p *Postgres) Guard(ctx context.Context, as []Association) error {
	names := make([]string, len(as))
	for i, a := range as {
		if a.Variable != "" {
			a.Value = pgtext.Indexable(a.Value)
		}
		names[i] = a.Saga + "/" + a.Variable + "/" + a.Value
	}
	return p.guard(ctx, names...)
}

// guard takes the advisory locks of names, until the transaction ends. It waits for other transactions that have one of them. It
// returns an error if the isolation level hides from the next statements what those transactions have committed.
func (p *Postgres) guard(ctx context.Context, names ...string) error {
	rows, err := p.tx.Query(ctx, guard, pg.Args{"class": int32(guardClass), "names": names})
	if err != nil {
		return err
	}
	var level string
	if _, err = pgx.ForEachRow(rows, []any{nil, &level}, func() error { return nil }); err != nil {
		return err
	}
	return checkIsolation(level)
}

// checkIsolation returns an error if a transaction of the isolation level does not see everything that others have committed.
func checkIsolation(level string) error {
	if level == "repeatable read" || level == "serializable" {
		return fmt.Errorf("the transaction has isolation level %s: a saga that takes a lock or awaits events needs read committed, to see "+
			"which locks are free and which events have come", level)
	}
	return nil
}

// queueIsolation adds a statement that checks the isolation level. An event that is stashed for a saga does not change the row of the saga, so
// that Postgres finds no conflict with a transaction which does not see the event.
func queueIsolation(batch *pgx.Batch) {
	batch.Queue("SELECT current_setting('transaction_isolation')").QueryRow(func(row pgx.Row) error {
		var level string
		if err := row.Scan(&level); err != nil {
			return err
		}
		return checkIsolation(level)
	})
}

// Lock adds saga id to the queue for the lock name, and reports whether id is the first. It guards the name as it is stored, since
// Unlock knows only the stored name.
func (p *Postgres) Lock(ctx context.Context, name, id string) (granted bool, err error) {
	name = pgtext.Indexable(name)
	if err := p.guard(ctx, "lock "+name); err != nil {
		return false, err
	}
	if _, err := p.tx.Exec(ctx, insertLock, pg.Args{"name": name, "id": id}); err != nil {
		return false, err
	}
	return p.Granted(ctx, id)
}

// Granted reports whether saga id is the first in its queue.
func (p *Postgres) Granted(ctx context.Context, id string) (granted bool, err error) {
	err = p.tx.QueryRow(ctx, hasLock, pg.Args{"id": id}).Scan(&granted)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return granted, err
}

// Unlock removes saga id from the queue for its lock. If id had the lock, Unlock returns the next saga of the queue, which has the lock
// now; otherwise it returns none.
func (p *Postgres) Unlock(ctx context.Context, id string) (granted []string, err error) {
	const find = "SELECT name FROM troupe.saga_locks WHERE saga_id = @id"
	var name string
	err = p.tx.QueryRow(ctx, find, pg.Args{"id": id}).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		err = p.guard(ctx, "lock "+name)
	}
	if err != nil {
		return nil, err
	}
	had, err := p.Granted(ctx, id)
	if err != nil {
		return nil, err
	}
	if _, err := p.tx.Exec(ctx, deleteLock, pg.Args{"id": id}); err != nil || !had {
		return nil, err
	}
	var next string
	err = p.tx.QueryRow(ctx, nextLock, pg.Args{"name": name}).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return []string{next}, err
}
