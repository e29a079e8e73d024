// Package retention creates the partitions of troupe.outbox ahead of its writers, and drops those whose rows are all published. It
// also reads the statistics of an outbox. Type Dropper documents when a partition is
// dropped, and the effect of each failure.
package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Published is a confirmed snapshot: the text of a pg_snapshot. Every row that is visible in it was published, or is in
// troupe.outbox_failures, or waits behind a row there, and its commit is on the server's disk. "" means that none of the
// existing rows was published: under poll the relay deletes published rows.
type Published string

// Config configures a Dropper. Pool is required.
type Config struct {
	// Pool provides one connection, which the retention keeps. The pool's role must own troupe.outbox, and the connection
	// must not go through a pooler.
	Pool *pgxpool.Pool
	// Age is the shortest time that a partition stays after its last row was seen published, so that there are rows to
	// replay. Creating a lost slot again needs none of them: it publishes unpublished rows only. Default 1 h; negative: none.
	// An empty partition, as poll leaves it, does not wait.
	Age time.Duration
}

// A Dropper drops the partitions of troupe.outbox whose rows are all published. It is not safe for concurrent use.
//
// A partition is dropped when, in this order,
//
//	(a) the sequence is past it, so that new inserts get later positions
//	(b) all transactions that held the writers' lock after that have ended, prepared ones too: no insert into it is possible
//	(c) each of its rows is visible in a confirmed snapshot, and none is in troupe.outbox_failures
//	(d) Age has passed since then
//	(e) it was detached, concurrently, and (c) still holds for the detached table
//
// The highest partition stays, and so do all that are ahead of the sequence.
//
//	          (a) to (d) hold       DETACH … CONCURRENTLY         (e), DROP TABLE
//	attached ─────────────────► detaching ─────────────► detached ───────────────► gone
//	    ▲                           │   └── cut short: FINALIZE ──▲
//	    └── crash before DETACH ────┘
//
// The state is stored in troupe.outbox_partitions before the step that it announces, and is compared with the catalogue at
// each call. The results of (a) and (b) are valid for one connection only, since a prepared transaction has another name
// after a restart of the server: after any error (a) and (b) start again.
//
//	failure                                effect
//	killed before DETACH                   the partition is attached again, by name; (a) to (d) start again
//	killed in DETACH                       the server ends it, or the next call does by FINALIZE
//	killed between DETACH and DROP         the next call checks the rows and drops the table
//	killed in DROP                         it is one transaction: the table exists or is gone
//	the server restarts                    (a) and (b) start again; prepared transactions are waited for
//	a transaction stays open after insert  its partition and all later ones stay; no writer waits
//	a reader stays open (pg_dump)          DETACH waits, DROP is tried again; no writer waits; partitions ahead are created
//	a row has failed                       its partition stays, others are dropped
//	no confirmed snapshot, or an old one   partitions stay
//	a row is found after DETACH            the table stays, and each call reports it: see docs/retention.md
//	CACHE is not 1, or there is a DEFAULT  nothing is dropped; the error says what to do
//	partition
//	two run at once                        the second is refused, by an advisory lock
type Dropper struct {
	pool *pgxpool.Pool
	age  time.Duration

	conn    *pgx.Conn // nil: not connected
	writers writers   // valid for this connection only

	at func(step string) error // called between steps, for tests; nil: not called
}

// Dropping is the result of a call of Drop.
type Dropping struct {
	Dropped []string        // partitions that no longer exist
	Kept    []KeptPartition // full partitions that stay: all of their positions were given out; lowest first
}

// KeptPartition is a full partition that stays for now.
type KeptPartition struct {
	Name string
	Why  string // reason, as text for an operator
	// Aging reports that the rows are published, and that the partition stays until Config.Age has passed.
	Aging bool
}

// ErrNotOwner is the error of Drop and Remove for a role that does not own Troupe's tables: Postgres lets only the owner detach
// partitions, and no other role may delete from the log of sagas.
var ErrNotOwner = errors.New("this role does not own Troupe's tables: run as the role that ran migrate, or GRANT it to this one")

// retentionLock prevents two sessions from dropping at the same time. It is not Ensure's lock: a detach may wait for hours, and writers
// need positions meanwhile.
const retentionLock = 0x74726f757066

// New checks the configuration. It does not connect.
func New(cfg Config) (*Dropper, error) {
	if cfg.Pool == nil {
		return nil, errors.New("outbox: retention: no pool")
	}
	if cfg.Age == 0 {
		cfg.Age = time.Hour
	}
	return &Dropper{pool: cfg.Pool, age: max(cfg.Age, 0)}, nil
}

// Drop drops the partitions that can be dropped now. Call it about once a minute, with the newest confirmed snapshot.
//
// Drop returns within seconds, except while it detaches: DETACH waits for every transaction that uses the table at that
// moment, which is hours while a dump runs. No writer waits meanwhile, and the caller must call Ensure from another
// goroutine, so that it does not wait either. When ctx ends, the wait ends too, and the next call continues.
func (r *Dropper) Drop(ctx context.Context, published Published) (Dropping, error) {
	var d Dropping
	err := r.drop(ctx, published, &d)
	if err != nil {
		r.Close()
		return d, fmt.Errorf("outbox: drop partitions: %w", err)
	}
	return d, nil
}

// Close closes the connection. A later Drop opens another.
func (r *Dropper) Close() {
	if r.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.conn.Close(ctx)              // no state on the server depends on it
	r.conn, r.writers = nil, writers{} // the results of (a) and (b) are valid for this connection only
}

func (r *Dropper) drop(ctx context.Context, published Published, d *Dropping) error {
	if err := r.connect(ctx); err != nil {
		return err
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock(ctx)
	if err := r.refuse(ctx, published); err != nil {
		return err
	}
	if err := r.finalize(ctx); err != nil {
		return err
	}
	full, err := r.full(ctx)
	if err != nil {
		return err
	}
	if err := r.lookAtWriters(ctx, full); err != nil {
		return err
	}
	for _, p := range full {
		why, aging, err := r.advance(ctx, p, published)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", p.name, err)
		case why == "":
			d.Dropped = append(d.Dropped, p.name)
		default:
			d.Kept = append(d.Kept, KeptPartition{p.name, why, aging})
		}
	}
	return nil
}

// connectionSettings disables time-outs, so that DETACH can wait: a time-out would leave the partition half detached. A
// commit is on disk before the next step begins. It waits for no standby, since synchronous_standby_names may match the
// outbox's relay.
const connectionSettings = `
SELECT set_config(name, '0', false)
FROM pg_settings
WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout', 'idle_session_timeout',
               'idle_in_transaction_session_timeout', 'max_parallel_workers_per_gather')
UNION ALL
SELECT set_config(name, 'local', false)
FROM pg_settings
WHERE name = 'synchronous_commit'
UNION ALL
SELECT set_config('application_name', 'troupe retention', false)`

func (r *Dropper) connect(ctx context.Context) error {
	if r.conn != nil && !r.conn.IsClosed() {
		return nil
	}
	r.Close()
	lent, err := r.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	r.conn = lent.Hijack()
	_, err = r.conn.Exec(ctx, connectionSettings)
	return err
}

func (r *Dropper) lock(ctx context.Context) error {
	var locked bool
	if err := r.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(retentionLock)).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return r.held(ctx)
	}
	return nil
}

// held returns an error that names the session or the prepared transaction that holds the lock. Each role that may connect can take
// it, since Postgres has no rights on advisory locks.
func (r *Dropper) held(ctx context.Context) error {
	var pid *int
	var role string
	var prepared *string
	err := r.conn.QueryRow(ctx, `
		SELECT l.pid, coalesce(a.usename, p.owner, '')::text, p.transaction::text
		FROM pg_locks AS l
		LEFT JOIN pg_stat_activity AS a USING (pid)
		LEFT JOIN pg_locks AS x ON l.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
			AND x.locktype = 'transactionid' AND x.granted
		LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
		WHERE l.locktype = 'advisory'
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND l.classid::bigint << 32 | l.objid::bigint = $1 AND l.objsubid = 1
		  AND l.granted AND (a.pid IS NOT NULL OR p.transaction IS NOT NULL)`, int64(retentionLock)).Scan(&pid, &role, &prepared)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it has ended meanwhile
		return errors.New("another session is at it")
	case err != nil:
		return fmt.Errorf("find the holder of the lock: %w", err)
	case pid == nil:
		return fmt.Errorf("prepared transaction %s of role %q holds its lock: end it with ROLLBACK PREPARED and its gid in "+
			"pg_prepared_xacts, and let no such role connect to this database", *prepared, role)
	}
	return fmt.Errorf("another session is at it: process %d of the database server, of role %q; if that is no role of a relay, end it with "+
		"SELECT pg_terminate_backend(%d), and let no such role connect to this database", *pid, role, *pid)
}

// unlock releases the lock on a connection that stays open; closing the connection releases it too.
func (r *Dropper) unlock(ctx context.Context) {
	if r.conn == nil || r.conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = r.conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", int64(retentionLock))
}

// refuse returns an error if a condition must be corrected before any partition may be dropped.
func (r *Dropper) refuse(ctx context.Context, published Published) error {
	var cache int64
	var fallback string
	var owner, ours bool
	var pid uint32
	err := r.conn.QueryRow(ctx, `
		SELECT (SELECT seqcache FROM pg_sequence WHERE seqrelid = 'troupe.outbox_position_seq'::regclass),
		       (SELECT CASE partdefid WHEN 0 THEN '' ELSE partdefid::regclass::text END
		        FROM pg_partitioned_table WHERE partrelid = c.oid),
		       pg_has_role(c.relowner, 'USAGE'),
		       pg_backend_pid(),
		       $1 = '' OR pg_snapshot_xmax(nullif($1, '')::pg_snapshot) <= pg_snapshot_xmax(pg_current_snapshot())
		FROM pg_class c
		WHERE c.oid = 'troupe.outbox'::regclass`, string(published)).Scan(&cache, &fallback, &owner, &pid, &ours)
	switch {
	case err != nil:
		return err
	case pid != r.conn.PgConn().PID():
		return errors.New("this is a pooler that changes server connections, which hides who still writes: " +
			"connect to the server itself")
	case !owner:
		return ErrNotOwner
	case cache != 1:
		return fmt.Errorf("the sequence of positions has CACHE %d, so that a low position may come late: "+
			"ALTER SEQUENCE troupe.outbox_position_seq CACHE 1, then restart the writers, whose sessions keep the positions that they cached",
			cache)
	case fallback != "":
		return fmt.Errorf("%[1]s is a DEFAULT partition, with which none can be detached concurrently: "+
			"empty it, then ALTER TABLE troupe.outbox DETACH PARTITION %[1]s", fallback)
	case !ours:
		return fmt.Errorf("the snapshot %s is of another server's life, or of another server: "+
			"let the relay heal and confirm a new one", published)
	}
	return nil
}

// lookAtWriters advances writers.passed if that can let a partition be dropped, and waits up to a second for writers that are
// about to end.
func (r *Dropper) lookAtWriters(ctx context.Context, full []partition) error {
	const looks, between = 10, 100 * time.Millisecond
	wanted := int64(0)
	for _, p := range full {
		wanted = max(wanted, p.hi-1)
	}
	for range looks {
		if r.writers.passed >= wanted {
			return nil
		}
		if err := r.writers.look(ctx, r.conn); err != nil {
			return fmt.Errorf("list writers: %w", err)
		}
		if r.writers.passed >= wanted {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(between):
		}
	}
	return nil
}
