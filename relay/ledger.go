package relay

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// A ledger knows for a stream, which tells each row once, what stands in troupe.outbox_trouble, so that a row behind one
// of its key is put there too; and a row that stands there itself, and is told again after a restart, is left there: a row
// without a key is known by its id. What stands before all of its key there is told again as well, and goes out. Keys are
// kept as hashes: two of the same hash wait for each other, which does no harm.
type ledger struct {
	db    *server
	lease *lease
	table *mappedTable // nil: troupe.outbox
	// service is ce_source of the table's rows that name none.
	service string
	seed    maphash.Seed
	keys    map[uint64]line // rows by key
	rows    int             // all

	blocking string // what rows waited behind when none of them could go out
	noted    int64  // lowest position of those that were recorded since; with table: highest of those before
}

// A line is what stands in trouble of one key.
type line struct {
	rows   int
	lowest int64 // position, or below it where one was cured; 0 for a table with a mapping, where positions say nothing
}

func (r *Relay) newLedger(db *server, l *lease) ledger {
	return ledger{db: db, lease: l, table: r.mapped, service: r.cfg.Service}
}

// load reads the table anew.
func (l *ledger) load(ctx context.Context) error {
	query, args := troubledKeys, []any(nil)
	if l.table != nil {
		query, args = mappedKeys, []any{l.table.args(nil)}
	}
	rows, err := l.db.Query(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read troubled keys: %w", err)
	}
	l.seed, l.keys, l.rows = maphash.MakeSeed(), make(map[uint64]line), 0
	var key []byte
	var of line
	_, err = pgx.ForEachRow(rows, []any{&key, &of.rows, &of.lowest}, func() error {
		l.count(key, of)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read troubled keys: %w", err)
	}
	return nil
}

func (l *ledger) hash(key []byte) uint64 { return maphash.Bytes(l.seed, key) }

// known is by what a row in trouble is found again.
func known(i *item) []byte {
	if i.key == nil {
		return i.row.ID[:]
	}
	return i.key
}

// behind says whether a row waits behind others of its key, or stands there itself.
func (l *ledger) behind(i *item) bool {
	if len(l.keys) == 0 {
		return false
	}
	of, there := l.keys[l.hash(known(i))]
	return there && i.row.Position >= of.lowest
}

func (l *ledger) note(i *item) {
	l.count(known(i), line{1, i.row.Position})
	if l.table == nil {
		l.noted = min(l.noted, i.row.Position)
	}
}

// count adds rows to a line, or takes them out.
func (l *ledger) count(key []byte, more line) {
	l.rows += more.rows
	h := l.hash(key)
	of, there := l.keys[h]
	if !there {
		of.lowest = more.lowest
	}
	if of.rows += more.rows; of.rows <= 0 {
		delete(l.keys, h)
		return
	}
	of.lowest = min(of.lowest, more.lowest)
	l.keys[h] = of
}

// due reads rows in trouble that may go out now.
func (l *ledger) due(ctx context.Context) ([]*item, error) {
	// Rows that wait are looked at again only where one that they may wait behind is gone: there may be a million.
	if l.table != nil {
		return l.dueMapped(ctx)
	}
	var blocking string
	if err := l.db.QueryRow(ctx, readBlocking).Scan(&blocking); err != nil {
		return nil, fmt.Errorf("read what rows wait behind: %w", err)
	}
	from := l.noted
	if blocking != l.blocking {
		from = math.MinInt64
	}
	rows, err := l.db.Query(ctx, claimTrouble, pg.Args{"rows": 1000, "from": from})
	if err != nil {
		return nil, fmt.Errorf("claim rows in trouble: %w", err)
	}
	defer rows.Close()
	var items []*item
	for rows.Next() {
		i := &item{}
		if err := rows.Scan(append(i.row.Fields(), &i.troubled, &i.attempts, &i.troubledFor, &i.maxAttempts)...); err != nil {
			return nil, fmt.Errorf("claim rows in trouble: %w", err)
		}
		i.key = i.row.OrderKey()
		items = append(items, i)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("claim rows in trouble: %w", err)
	}
	if len(items) == 0 {
		l.blocking, l.noted = blocking, math.MaxInt64
	}
	return items, nil
}

// dueMapped is due of a table with a mapping, where the rows that were recorded since have the highest positions.
func (l *ledger) dueMapped(ctx context.Context) ([]*item, error) {
	var blocking string
	var newest int64
	if err := l.db.QueryRow(ctx, readMappedBlocking, l.table.args(nil)).Scan(&blocking, &newest); err != nil {
		return nil, fmt.Errorf("read what rows wait behind: %w", err)
	}
	after := l.noted
	if blocking != l.blocking {
		after = math.MinInt64
	}
	items, err := l.table.due(ctx, l.db, after, l.service)
	if err == nil && len(items) == 0 {
		l.blocking, l.noted = blocking, newest
	}
	return items, err
}

// cure takes out what was published. The error is errLost when the term is over.
func (l *ledger) cure(ctx context.Context, items []*item) error {
	positions, ids := make([]int64, 0, len(items)), make([][16]byte, 0, len(items))
	for _, i := range items {
		if i.troubled {
			positions, ids = append(positions, i.row.Position), append(ids, i.row.ID)
		}
	}
	if len(positions) == 0 {
		return nil
	}
	if l.table != nil {
		if err := l.table.cure(ctx, l.db, l.lease, ids); err != nil {
			return err
		}
		l.cured(items)
		return nil
	}
	var held int
	args := l.lease.args(pg.Args{"positions": positions, "ids": ids})
	switch err := l.db.QueryRow(ctx, cureTrouble, args).Scan(&held); {
	case err != nil:
		return fmt.Errorf("cure trouble: %w", err)
	case held == 0:
		return fmt.Errorf("cure trouble: %w", errLost)
	}
	l.cured(items)
	return nil
}

func (l *ledger) cured(items []*item) {
	for _, i := range items {
		if i.troubled {
			l.count(known(i), line{-1, i.row.Position})
		}
	}
}
