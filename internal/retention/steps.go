package retention

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// advance brings one partition as far as possible. An empty why means that it is gone; otherwise why is the reason that it
// stays, and aging has the meaning of KeptPartition.Aging.
func (r *Dropper) advance(ctx context.Context, p partition, published Published) (why string, aging bool, err error) {
	switch p.stands() {
	case mayGo:
		why, aging, err = r.consider(ctx, p, published)
		if why != "" || err != nil {
			return why, aging, err
		}
		if err := r.detach(ctx, p); err != nil {
			return "", false, err
		}
		why, err = r.remove(ctx, p, published)
	case wasNotDetached:
		why, err = "its detachment was interrupted and is restarted", r.note(ctx, p, "attached")
	case isDetached:
		if err := r.note(ctx, p, "detached"); err != nil {
			return "", false, err
		}
		why, err = r.remove(ctx, p, published)
	case isGone:
		_, err = r.conn.Exec(ctx, "DELETE FROM troupe.outbox_partitions WHERE name = $1", p.name)
	default:
		why = "it was detached by hand: attach it again, or drop it and delete its line in troupe.outbox_partitions"
	}
	return why, false, err
}

// consider returns the reason why a partition must stay, or "" if it may be detached.
func (r *Dropper) consider(ctx context.Context, p partition, published Published) (why string, aging bool, err error) {
	if p.hi-1 > r.writers.passed {
		return "a transaction may still write there: " + r.writers.describe(), false, nil
	}
	if p.until != nil { // its rows are known to be published: checking millions of rows each minute would find nothing new
		return keptUntil(*p.until), true, nil
	}
	why, empty, err := r.unpublished(ctx, p, published)
	if why != "" || err != nil {
		return why, false, err
	}
	if empty || r.age == 0 {
		return "", false, nil
	}
	err = r.conn.QueryRow(ctx, `
		UPDATE troupe.outbox_partitions
		SET done_at = least(done_at, clock_timestamp()) -- a later time is from a clock that was ahead
		WHERE name = $1
		RETURNING CASE WHEN done_at + $2::interval > clock_timestamp() THEN done_at + $2::interval END`,
		p.name, r.age).Scan(&p.until)
	if err != nil || p.until == nil {
		return "", false, err
	}
	return keptUntil(*p.until), true, nil
}

func keptUntil(t time.Time) string {
	return "its rows are published and kept until " + t.UTC().Format(time.RFC3339)
}

// unpublished returns the reason if a row of p is not published or failed, or "". It reads all of p. A restored row is published once the
// snapshot sees the transaction that restored it, whatever its xid is.
func (r *Dropper) unpublished(ctx context.Context, p partition, published Published) (why string, empty bool, err error) {
	var failed int64
	err = r.conn.QueryRow(ctx, `SELECT count(*) FROM troupe.outbox_failures WHERE position >= $1 AND position < $2`,
		p.lo, p.hi).Scan(&failed)
	if err != nil {
		return "", false, err
	}
	if failed > 0 {
		return fmt.Sprintf("%d of its rows are in troupe.outbox_failures", failed), false, nil
	}
	// Without a prepared statement: the table is about to be dropped.
	var position *int64
	err = r.conn.QueryRow(ctx, fmt.Sprintf(`
		SELECT NOT EXISTS (SELECT FROM %[1]s),
		       (SELECT position FROM %[1]s
		        WHERE $1 = '' OR NOT ((pg_visible_in_snapshot(xid, nullif($1, '')::pg_snapshot)
		          OR pg_visible_in_snapshot(troupe.outbox_inserted_by(xid, xmin), nullif($1, '')::pg_snapshot))
		          AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', xmin), nullif($1, '')::pg_snapshot)) LIMIT 1)`, p.table()),
		pgx.QueryExecModeExec, string(published)).Scan(&empty, &position)
	if err != nil || position == nil {
		return "", empty, err
	}
	return fmt.Sprintf("position %d is not published", *position), false, nil
}

// detach may wait as long as any transaction uses the table. It has no time-out, since a time-out would leave the partition
// half detached.
func (r *Dropper) detach(ctx context.Context, p partition) error {
	if err := r.note(ctx, p, "detaching"); err != nil {
		return err
	}
	if err := r.reached("detaching"); err != nil {
		return err
	}
	_, err := r.conn.Exec(ctx, "ALTER TABLE troupe.outbox DETACH PARTITION "+p.table()+" CONCURRENTLY")
	if err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	if err := r.reached("detached"); err != nil {
		return err
	}
	return r.note(ctx, p, "detached")
}

// remove drops a detached table. A row that is found in it and is not published keeps the table: no stream delivers it and no
// poll finds it. remove checks under the same lock with which it drops; by then only a reader of the table can be blocked by
// that lock.
func (r *Dropper) remove(ctx context.Context, p partition, published Published) (why string, err error) {
	if err := r.reached("noted"); err != nil {
		return "", err
	}
	err = pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'; LOCK TABLE "+p.table()+" IN ACCESS EXCLUSIVE MODE")
		if err != nil {
			return err
		}
		why, _, err = r.unpublished(ctx, p, published)
		if why != "" || err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DROP TABLE "+p.table()); err != nil {
			return err
		}
		if err := r.reached("dropped"); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM troupe.outbox_partitions WHERE name = $1", p.name)
		return err
	})
	switch {
	case isLockTimeout(err):
		return "it is detached, and a session still reads it", nil
	case err != nil:
		return "", fmt.Errorf("drop: %w", err)
	case why != "":
		return "it is detached, and " + why + ": docs/retention.md says how to put it back into the outbox", nil
	}
	return "", nil
}

// finalize completes detaches that were interrupted. While there is one, Postgres refuses every other detach.
func (r *Dropper) finalize(ctx context.Context) error {
	rows, err := r.conn.Query(ctx, `
		SELECT inhrelid::regclass::text
		FROM pg_inherits
		WHERE inhparent = 'troupe.outbox'::regclass AND inhdetachpending`)
	if err != nil {
		return err
	}
	pending, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, table := range pending { // names are quoted by regclass
		if _, err := r.conn.Exec(ctx, "ALTER TABLE troupe.outbox DETACH PARTITION "+table+" FINALIZE"); err != nil {
			return fmt.Errorf("finalize %s: %w", strings.TrimPrefix(table, "troupe."), err)
		}
	}
	return nil
}

func (r *Dropper) note(ctx context.Context, p partition, state string) error {
	_, err := r.conn.Exec(ctx, "UPDATE troupe.outbox_partitions SET state = $2 WHERE name = $1", p.name, state)
	return err
}

func (r *Dropper) reached(step string) error {
	if r.at == nil {
		return nil
	}
	return r.at(step)
}
