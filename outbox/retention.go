package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Published is a pg_snapshot as text that is confirmed: every row that is visible in it was published, or stands in
// troupe.outbox_trouble, or waits behind one there, and the server has its commit on disk. "" says that no row that is
// there was published: under poll, what was published is gone.
type Published string

// RetentionConfig of a Retention. Pool is required.
type RetentionConfig struct {
	// Pool lends one connection, which the retention keeps: with the pool's configuration, as a role that owns
	// troupe.outbox, and not through a pooler.
	Pool *pgxpool.Pool
	// Age is how long a partition stays at least after its last row was seen published, so that there are rows to
	// replay. Healing needs none of them: it sends what was not published. Default 1 h; negative: none. An empty
	// partition, as poll leaves it, has nothing to keep and does not wait.
	Age time.Duration
}

// A Retention drops the partitions of troupe.outbox that are done. It is not for concurrent use.
//
// A partition is dropped when, in this order,
//
//	(a) the sequence is past it, so that whoever comes takes a later position
//	(b) all who held the lock of writers after that have ended, prepared transactions too: nobody can write there
//	(c) each of its rows is visible in a confirmed snapshot, and none stands in troupe.outbox_trouble
//	(d) Age has passed since then
//	(e) it was detached, concurrently, and (c) still holds for the table that it is now
//
// The highest partition stays, and so do all that are ahead of the sequence.
//
//	          (a) to (d) hold       DETACH … CONCURRENTLY         (e), DROP TABLE
//	attached ─────────────────► detaching ─────────────► detached ───────────────► gone
//	    ▲                           │   └── cut short: FINALIZE ──▲
//	    └── crash before DETACH ────┘
//
// The state stands in troupe.outbox_partitions, is written before the step that it announces, and is compared with the
// catalogue at each call. What (a) and (b) found is known to one connection only, since a prepared transaction has
// another name after a restart of the server: after any error they begin anew.
//
//	failure                                effect
//	killed before DETACH                   the partition is attached again, by name; (a) to (d) begin anew
//	killed in DETACH                       the server ends it, or the next call does by FINALIZE
//	killed between DETACH and DROP         the next call looks at the rows and drops the table
//	killed in DROP                         one transaction: it is there or gone
//	the server restarts                    (a) and (b) begin anew; prepared transactions are waited for
//	a transaction stays open after insert  its partition and all later ones stay; no writer waits
//	a reader stays open (pg_dump)          DETACH waits, DROP is tried again; no writer waits; partitions ahead are made
//	a row is in trouble                    its partition stays, others go
//	no confirmed snapshot, or an old one   partitions stay
//	a row turns up after DETACH            the table stays, and each call says so: see docs/retention.md
//	CACHE is not 1, or there is a DEFAULT  nothing is dropped; the error says what to do
//	partition
//	two at once                            the second is refused, by an advisory lock
type Retention struct {
	pool *pgxpool.Pool
	age  time.Duration

	conn    *pgx.Conn // nil: none
	writers writers   // of this connection's life

	at func(step string) error // between steps, for tests; nil: nothing
}

// Dropping says what a call of Drop did.
type Dropping struct {
	Dropped []string        // partitions that are gone
	Kept    []KeptPartition // whose positions were all given out, from the lowest
}

// KeptPartition is a partition that is full and stays for now.
type KeptPartition struct {
	Name string
	Why  string // for a person
}

// ErrNotOwner is the error of Drop for a role that does not own troupe.outbox: Postgres lets only the owner detach partitions.
var ErrNotOwner = errors.New("this role does not own troupe.outbox: run as the role that ran migrate, or GRANT it to this one")

// retentionLock keeps two from dropping at once. Not Ensure's: a detach may wait for hours, and writers need positions.
const retentionLock = partitionsLock + 1

// NewRetention checks the configuration. It connects to nothing.
func NewRetention(cfg RetentionConfig) (*Retention, error) {
	if cfg.Pool == nil {
		return nil, errors.New("outbox: retention: no pool")
	}
	if cfg.Age == 0 {
		cfg.Age = time.Hour
	}
	return &Retention{pool: cfg.Pool, age: max(cfg.Age, 0)}, nil
}

// Drop drops what is done, as far as it can be now. To be called each minute or so, with the newest confirmed snapshot.
//
// It returns within seconds, but for the detach, which waits for every transaction that uses the table at that moment:
// hours, while a dump runs. No writer waits meanwhile; and whoever calls must not keep Ensure waiting either. When ctx
// ends so does the wait, and the next call takes it up.
func (r *Retention) Drop(ctx context.Context, published Published) (Dropping, error) {
	var d Dropping
	err := r.drop(ctx, published, &d)
	if err != nil {
		r.Close()
		return d, fmt.Errorf("outbox: drop partitions: %w", err)
	}
	return d, nil
}

// Close gives the connection up. A later Drop opens another.
func (r *Retention) Close() {
	if r.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.conn.Close(ctx)              // it holds nothing that matters
	r.conn, r.writers = nil, writers{} // what was seen goes with it
}

func (r *Retention) drop(ctx context.Context, published Published, d *Dropping) error {
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
		why, err := r.advance(ctx, p, published)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", p.name, err)
		case why == "":
			d.Dropped = append(d.Dropped, p.name)
		default:
			d.Kept = append(d.Kept, KeptPartition{p.name, why})
		}
	}
	return nil
}

// connectionSettings lets DETACH wait: cut short by a time-out, it leaves the partition in between. Commits
// are on disk before the next step begins; they wait for no standby, which the outbox's relay may be taken for.
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

func (r *Retention) connect(ctx context.Context) error {
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

func (r *Retention) lock(ctx context.Context) error {
	var locked bool
	if err := r.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(retentionLock)).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return errors.New("another session is at it; it is named troupe retention in pg_stat_activity")
	}
	return nil
}

// unlock matters where the connection stays; with the connection the lock ends by itself.
func (r *Retention) unlock(ctx context.Context) {
	if r.conn == nil || r.conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = r.conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", int64(retentionLock))
}

// refuse says what must be put right before anything may be dropped.
func (r *Retention) refuse(ctx context.Context, published Published) error {
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
			"ALTER SEQUENCE troupe.outbox_position_seq CACHE 1, then restart the writers, whose sessions keep what they cached",
			cache)
	case fallback != "":
		return fmt.Errorf("%[1]s is a DEFAULT partition, beside which none can be detached concurrently: "+
			"empty it, then ALTER TABLE troupe.outbox DETACH PARTITION %[1]s", fallback)
	case !ours:
		return fmt.Errorf("the snapshot %s is of another server's life, or of another server: "+
			"let the relay heal and confirm a new one", published)
	}
	return nil
}

// lookAtWriters moves the mark if a partition would profit, and gives those who are about to end a second for it.
func (r *Retention) lookAtWriters(ctx context.Context, full []partition) error {
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
