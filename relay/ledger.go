package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// A ledger holds the keys of the rows that are recorded in troupe.outbox_failures, or in troupe.mapped_failures for a mapped table. A
// stream delivers each row once. So when it delivers a row behind a recorded row of the same key, it must record that row too, and the
// ledger shows that.
//
// After a restart a stream may deliver rows again. A row that is recorded itself is not published then, and keeps its record; a row without
// a key is recognised by its id. A row before all recorded rows of its key is published: again, or for the first time if its Kafka
// transaction was aborted.
//
// Keys are held as hashes. Two keys with the same hash wait for each other, which does no harm.
type ledger struct {
	db    *server
	lease *lease
	table *mappedTable // nil: troupe.outbox
	// service is the ce_source of rows that name none.
	service string
	seed    maphash.Seed
	keys    map[uint64]keyFailures // recorded rows by key
	rows    int                    // recorded rows in total

	blocking string // digest of the blocking rows, behind which others waited, when the method due last found no row
	// blockedBefore is the position from which the method due reads waiting rows. All waiting rows before it are blocked while the blocking
	// rows are unchanged. For a mapped table the row at blockedBefore is blocked too.
	blockedBefore int64
}

// A keyFailures counts the failed rows of one key.
type keyFailures struct {
	rows   int
	lowest logOrder // place of the first of these rows, or a lower one: it does not change when the first row is published
}

// A logOrder is the place of a row in the order of its key. The zero value sorts first: a row of a mapped table has it if the row was read
// from the table, and not from the log.
type logOrder struct {
	commit wal.LSN // zero for rows of troupe.outbox, whose position is the number
	number int64
}

func (p logOrder) before(q logOrder) bool {
	return p.commit < q.commit || p.commit == q.commit && p.number < q.number
}

// order returns the row's place in the order of its key.
func (i *item) order() logOrder {
	if i.mapped != nil {
		return logOrder{i.commit, i.commitRow}
	}
	return logOrder{0, i.row.Position}
}

func (r *Relay) newLedger(db *server, l *lease) ledger {
	return ledger{db: db, lease: l, table: r.mapped, service: r.cfg.Service}
}

// load fills the ledger from the database: it sets l.keys to the keys of all failed rows, and l.rows to their number. It reads
// troupe.outbox_failures, or the mapped table's rows of troupe.mapped_failures.
func (l *ledger) load(ctx context.Context) error {
	query, args := failedKeys, []any(nil)
	if l.table != nil {
		query, args = mappedKeys, []any{l.table.args(nil)}
	}
	rows, err := l.db.Query(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read the keys of failed rows: %w", err)
	}
	l.seed, l.keys, l.rows = maphash.MakeSeed(), make(map[uint64]keyFailures), 0
	var key []byte
	var of keyFailures
	var commit string
	_, err = pgx.ForEachRow(rows, []any{&key, &of.rows, &commit, &of.lowest.number}, func() error {
		var err error
		of.lowest.commit, err = wal.ParseLSN(commit)
		l.count(key, of)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the keys of failed rows: %w", err)
	}
	return nil
}

// loadSwept fills the ledger as load does, for a sweep of a mapped table. A sweep reads rows in the order of the mapping's position or
// timestamp, so the first recorded row of each key is the first one in this order. A row before it does not wait. There may be such a row
// under exactly-once: the later row was recorded, and the slot was lost before the Kafka transaction of the earlier row was committed.
func (l *ledger) loadSwept(ctx context.Context) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	for h, of := range l.keys {
		of.lowest = logOrder{0, math.MaxInt64}
		l.keys[h] = of
	}
	rows, err := l.db.Query(ctx, firstMappedFailures, l.table.args(nil))
	if err != nil {
		return fmt.Errorf("read the first failure of each key: %w", err)
	}
	var key, kept []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &kept}, func() error {
		row := &mappedRow{}
		if err := json.Unmarshal(kept, &row.Row); err != nil {
			return err
		}
		row.message, row.err = row.Message(l.table.mapping)
		h := l.hash(key)
		of, there := l.keys[h]
		if first := (logOrder{0, row.sweepOrder(l.table, math.MinInt64)}); there && first.before(of.lowest) {
			of.lowest = first
			l.keys[h] = of
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the first failure of each key: %w", err)
	}
	return nil
}

func (l *ledger) hash(key []byte) uint64 { return maphash.Bytes(l.seed, key) }

// failureKey returns the bytes by which the ledger recognises a failed row: its key, or its id if it has no key.
func failureKey(i *item) []byte {
	if i.key == nil {
		return i.row.ID[:]
	}
	return i.key
}

// behind reports whether a row waits behind recorded rows of its key, or is recorded itself.
func (l *ledger) behind(i *item) bool {
	if len(l.keys) == 0 {
		return false
	}
	of, there := l.keys[l.hash(failureKey(i))]
	return there && !i.order().before(of.lowest)
}

// precedesRecorded reports whether a row comes before the recorded rows of its key.
func (l *ledger) precedesRecorded(i *item) bool {
	of, there := l.keys[l.hash(failureKey(i))]
	return there && i.key != nil && i.order().before(of.lowest)
}

// addFailure adds a row that was just recorded as failed.
func (l *ledger) addFailure(i *item) {
	l.count(failureKey(i), keyFailures{1, i.order()})
	if l.table == nil {
		l.blockedBefore = min(l.blockedBefore, i.row.Position)
	}
}

// count adds a number of failed rows to a key. A negative number removes rows, and leaves keyFailures.lowest as it is.
func (l *ledger) count(key []byte, more keyFailures) {
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
	if more.rows > 0 && more.lowest.before(of.lowest) {
		of.lowest = more.lowest
	}
	l.keys[h] = of
}

// due reads failed rows that may be published now. There may be a million waiting rows. If the blocking rows are unchanged since due last
// found no row, due reads only the waiting rows from blockedBefore on.
func (l *ledger) due(ctx context.Context) ([]*item, error) {
	if l.table != nil {
		return l.dueMapped(ctx)
	}
	var blocking string
	if err := l.db.QueryRow(ctx, readBlocking).Scan(&blocking); err != nil {
		return nil, fmt.Errorf("read what rows wait behind: %w", err)
	}
	from := l.blockedBefore
	if blocking != l.blocking {
		from = math.MinInt64
	}
	items, err := l.claim(ctx, from)
	switch {
	case unconvertible(err):
		return nil, parkUnreadable(ctx, l.db, parkUnreadableFailures, l.lease.args(nil), err)
	case err == nil && len(items) == 0:
		if from < math.MaxInt64 {
			// This statement does not read troupe.outbox: a row that became visible after the claim must be found by the next claim.
			if err := l.db.QueryRow(ctx, firstUnblocked, pg.Args{"from": from}).Scan(&from); err != nil {
				return nil, fmt.Errorf("look for rows that are not visible yet: %w", err)
			}
		}
		l.blocking, l.blockedBefore = blocking, from
	}
	return items, err
}

// claim reads failed rows of troupe.outbox that may be published now: rows whose next try is due, and waiting rows that are not blocked,
// from position from on.
func (l *ledger) claim(ctx context.Context, from int64) ([]*item, error) {
	rows, err := l.db.Query(ctx, claimFailures, pg.Args{"rows": 1000, "from": from, "bytes": claimBytes})
	if err != nil {
		return nil, fmt.Errorf("claim failed rows: %w", err)
	}
	defer rows.Close()
	var items []*item
	for rows.Next() {
		i := &item{}
		if err := rows.Scan(append(i.row.Fields(), &i.failedBefore, &i.attempts, &i.failingFor, &i.maxAttempts)...); err != nil {
			return nil, fmt.Errorf("claim failed rows: %w", err)
		}
		i.key = i.row.OrderKey()
		items = append(items, i)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("claim failed rows: %w", err)
	}
	return items, nil
}

// dueMapped does the same as due for a mapped table. Its blockedBefore is a position in troupe.mapped_failures: a row that is recorded
// later has a higher one.
func (l *ledger) dueMapped(ctx context.Context) ([]*item, error) {
	var blocking string
	var newest int64
	if err := l.db.QueryRow(ctx, readMappedBlocking, l.table.args(nil)).Scan(&blocking, &newest); err != nil {
		return nil, fmt.Errorf("read what rows wait behind: %w", err)
	}
	after := l.blockedBefore
	if blocking != l.blocking {
		after = math.MinInt64
	}
	items, err := l.table.due(ctx, l.db, after, l.service)
	if err == nil && len(items) == 0 {
		l.blocking, l.blockedBefore = blocking, newest
	}
	return items, err
}

// cure deletes the failure records of rows that were published. The error wraps errLost when the term is over.
func (l *ledger) cure(ctx context.Context, items []*item) error {
	positions, ids := make([]int64, 0, len(items)), make([][16]byte, 0, len(items))
	for _, i := range items {
		if i.failedBefore {
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
	switch err := l.db.QueryRow(ctx, cureFailures, args).Scan(&held); {
	case err != nil:
		return fmt.Errorf("delete the failure records of published rows: %w", err)
	case held == 0:
		return fmt.Errorf("delete the failure records of published rows: %w", errLost)
	}
	l.cured(items)
	return nil
}

// cured removes rows from the ledger after their failure records were deleted.
func (l *ledger) cured(items []*item) {
	for _, i := range items {
		if i.failedBefore {
			l.count(failureKey(i), keyFailures{rows: -1})
		}
	}
}
