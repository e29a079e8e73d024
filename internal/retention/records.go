package retention

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	//go:embed sql/read_keep.sql
	readKeep string
	//go:embed sql/lock_kind.sql
	lockKind string
	//go:embed sql/count_removed.sql
	countRemoved string
	//go:embed sql/lock_sagas.sql
	lockSagas string
	//go:embed sql/list_answering_groups.sql
	listAnsweringGroups string
	//go:embed sql/delete_sagas.sql
	deleteSagas string
	//go:embed sql/delete_dead_letters.sql
	deleteDeadLetters string
	//go:embed sql/delete_repairs.sql
	deleteRepairs string
	//go:embed sql/delete_outbox_repairs.sql
	deleteOutboxRepairs string
	//go:embed sql/delete_pauses.sql
	deletePauses string
)

// The kinds of records, as in troupe.retention.
const (
	Sagas       = "sagas"        // ended ones, with their logs
	DeadLetters = "dead letters" // closed ones
	Repairs     = "repairs"      // operators' actions: troupe.repairs, troupe.outbox_repairs and troupe.relay_pauses
)

const (
	sagaBatch   = 200 // sagas in a transaction, each with its log
	recordBatch = 500
	// restartAfter is the time after which a pass begins with the oldest record again. Until then it continues after the last record that
	// was read, since the index has the entries of removed records until they are vacuumed.
	restartAfter = time.Hour
	// transactionLimit limits each transaction: a server whose host is cut off, or hangs, answers nothing and keeps the connection. The
	// first batch of a large database may take minutes. After a transaction that takes longer, the next one removes half as many records.
	transactionLimit = 10 * time.Minute
)

// Records removes closed records from a database, in bounded batches: ended sagas with their logs, closed dead letters, and the log of
// operators' actions. troupe.retention has the time for which each kind is kept. It is not safe for concurrent use; of several
// processes, one removes records of a kind at a time.
//
// A record stays as long as another part depends on it. The conditions are in the statements that delete; docs/retention.md lists them.
//
//	failure                              effect
//	killed at any time                   a batch is one transaction: the next pass continues
//	another transaction locks a record   it is skipped; a pass within the hour tries it again
//	a batch fails                        the pass ends with the error, and the next one tries again; with a smaller batch if it took too long
type Records struct {
	pool *pgxpool.Pool
	// pause waits between two batches; took is the time of the last one.
	pause func(ctx context.Context, took time.Duration) error
	limit time.Duration // transactionLimit

	began   time.Time         // when a pass began with the oldest record
	after   map[string]cursor // by part: the last record that was read
	smaller map[string]int    // by part: the size of its batches, after a batch that took too long
}

// A cursor is the position of a record in the order in which a pass reads.
type cursor struct {
	at       time.Time
	id       string
	position int64
}

// Removed counts the records of each kind that a pass removed.
type Removed map[string]int64

// NewRecords returns Records. It does no I/O. Pool needs one connection while a pass runs.
func NewRecords(pool *pgxpool.Pool) *Records {
	return &Records{pool: pool, pause: pauseAsLong, limit: transactionLimit, smaller: make(map[string]int)}
}

// pauseAsLong waits as long as the last batch took, so that half of the time is left to other work.
func pauseAsLong(ctx context.Context, took time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(took):
		return nil
	}
}

// Remove makes a pass: it removes all records that may be removed now, and returns how many, also together with an error. The error
// wraps ErrNotOwner for a role that may not delete from the log of sagas.
func (r *Records) Remove(ctx context.Context) (Removed, error) {
	removed := Removed{}
	if err := r.remove(ctx, removed); err != nil {
		return removed, fmt.Errorf("retention: %w", err)
	}
	return removed, nil
}

func (r *Records) remove(ctx context.Context, removed Removed) error {
	const owns = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'troupe.saga_events'::regclass"
	var owner bool
	limited, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	if err := r.pool.QueryRow(limited, owns).Scan(&owner); err != nil {
		return err
	}
	if !owner {
		return ErrNotOwner
	}
	before, err := r.readKeep(limited)
	if err != nil {
		return err
	}
	if now := time.Now(); now.Sub(r.began) >= restartAfter {
		r.began, r.after = now, make(map[string]cursor)
	}
	for kind, parts := range map[string][]part{
		Sagas:       {{"completed", sagaBatch, r.removeSagas}, {"compensated", sagaBatch, r.removeSagas}, {"abandoned", sagaBatch, r.removeSagas}},
		DeadLetters: {{DeadLetters, recordBatch, removeLetters}},
		Repairs: {
			{"repairs", recordBatch, byPosition(deleteRepairs)}, {"outbox repairs", recordBatch, byPosition(deleteOutboxRepairs)},
			{"pauses", recordBatch, byPosition(deletePauses)},
		},
	} {
		limit, kept := before[kind]
		if !kept {
			continue
		}
		n, err := r.removeKind(ctx, kind, limit, parts)
		removed[kind] = n
		if err != nil {
			return fmt.Errorf("remove %s: %w", kind, err)
		}
	}
	return nil
}

func (r *Records) readKeep(ctx context.Context) (before map[string]time.Time, err error) {
	rows, err := r.pool.Query(ctx, readKeep)
	if err != nil {
		return nil, err
	}
	before = make(map[string]time.Time)
	var kind string
	var limit time.Time
	_, err = pgx.ForEachRow(rows, []any{&kind, &limit}, func() error {
		before[kind] = limit
		return nil
	})
	return before, err
}

// part is a part of a kind's records, which a pass reads in an order of its own.
type part struct {
	name   string
	size   int // of a batch
	remove func(ctx context.Context, tx pgx.Tx, of batch) (result, error)
}

// batch is the next batch of a part.
type batch struct {
	part   string
	before time.Time // remove records that were closed before
	after  cursor
	size   int // the most records to read
}

type result struct {
	removed int64
	last    cursor // the last record that was read
	more    bool   // there may be more behind it
}

// errBusy reports that another session removes records of this kind.
var errBusy = errors.New("another session removes them")

func (r *Records) removeKind(ctx context.Context, kind string, before time.Time, parts []part) (removed int64, err error) {
	for i, p := range parts {
		for more := true; more; {
			began := time.Now()
			size := r.batchSize(p)
			var done result
			limited, cancel := context.WithTimeout(ctx, r.limit)
			err := pgx.BeginTxFunc(limited, r.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				if err := lock(limited, tx, kind); err != nil {
					return err
				}
				if done, err = p.remove(limited, tx, batch{p.name, before, r.after[p.name], size}); err != nil {
					return err
				}
				passed := !done.more && i == len(parts)-1
				if done.removed == 0 && !passed {
					return nil
				}
				_, err := tx.Exec(limited, countRemoved, pgx.NamedArgs{"kind": kind, "removed": done.removed, "passed": passed})
				return err
			})
			refused := (*pgconn.PgError)(nil) // by a statement_timeout or transaction_timeout of the role
			tooLong := ctx.Err() == nil && (limited.Err() != nil || errors.As(err, &refused) && (refused.Code == "57014" || refused.Code == "25P04"))
			cancel()
			switch took := time.Since(began); {
			case tooLong:
				r.smaller[p.name] = max(size/2, 1)
			case err == nil && took < r.limit/8: // twice as many are well within the limit
				r.smaller[p.name] = 2 * size
			}
			if errors.Is(err, errBusy) {
				return removed, nil
			}
			if err != nil {
				return removed, err
			}
			removed, r.after[p.name], more = removed+done.removed, done.last, done.more
			if more {
				if err := r.pause(ctx, time.Since(began)); err != nil {
					return removed, err
				}
			}
		}
	}
	return removed, nil
}

// batchSize returns the size of p's next batch.
func (r *Records) batchSize(p part) int {
	if size := r.smaller[p.name]; size > 0 {
		return min(size, p.size)
	}
	return p.size
}

// lock makes other sessions leave this kind alone until tx ends. The commit of tx does not wait for the disk: a batch that is lost in a
// crash is removed again.
func lock(ctx context.Context, tx pgx.Tx, kind string) error {
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'; SET LOCAL synchronous_commit = off"); err != nil {
		return err
	}
	err := tx.QueryRow(ctx, lockKind, pgx.NamedArgs{"kind": kind}).Scan(nil)
	if errors.Is(err, pgx.ErrNoRows) {
		return errBusy
	}
	return err
}

// removeSagas removes ended sagas of the status that is the part's name.
func (r *Records) removeSagas(ctx context.Context, tx pgx.Tx, of batch) (done result, err error) {
	rows, err := tx.Query(ctx, lockSagas, pgx.NamedArgs{
		"status": of.part, "after_at": of.after.at, "after_id": of.after.id, "before": of.before, "limit": of.size,
	})
	if err != nil {
		return done, err
	}
	var ids []string
	done.last = of.after
	_, err = pgx.ForEachRow(rows, []any{&done.last.at, &done.last.id}, func() error {
		ids = append(ids, done.last.id)
		return nil
	})
	if err != nil || len(ids) == 0 {
		return done, err
	}
	done.more = len(ids) == of.size
	rows, err = tx.Query(ctx, listAnsweringGroups)
	if err != nil {
		return done, err
	}
	groups, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return done, err
	}
	err = tx.QueryRow(ctx, deleteSagas, pgx.NamedArgs{"ids": ids, "groups": groups, "before": of.before, "limit": of.size}).Scan(&done.removed)
	return done, err
}

func removeLetters(ctx context.Context, tx pgx.Tx, of batch) (done result, err error) {
	const first = "00000000-0000-0000-0000-000000000000"
	id := of.after.id
	if id == "" {
		id = first
	}
	done.last = of.after
	var found int
	err = tx.QueryRow(ctx, deleteDeadLetters, pgx.NamedArgs{
		"after_at": of.after.at, "after_id": id, "before": of.before, "limit": of.size,
	}).Scan(&found, &done.removed, &done.last.at, &done.last.id)
	if errors.Is(err, pgx.ErrNoRows) {
		return done, nil
	}
	done.more = found == of.size
	return done, err
}

// byPosition returns the function that removes rows of a log by a statement.
func byPosition(sql string) func(context.Context, pgx.Tx, batch) (result, error) {
	return func(ctx context.Context, tx pgx.Tx, of batch) (done result, err error) {
		done.last = of.after
		var found int
		var last int64
		var all bool
		err = tx.QueryRow(ctx, sql, pgx.NamedArgs{"after": of.after.position, "before": of.before, "limit": of.size}).
			Scan(&found, &done.removed, &last, &all)
		if done.more = found == of.size && all; all {
			done.last.position = last
		}
		return done, err
	}
}
