package retention

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// partition is a line of troupe.outbox_partitions, with the state of its table in the catalogue.
type partition struct {
	name     string
	lo, hi   int64
	state    string
	exists   bool
	attached bool
	until    *time.Time // all rows published; to be kept until then. nil: not known to be published, or that time has passed
}

func (p partition) table() string { return pgx.Identifier{"troupe", p.name}.Sanitize() }

// standing is a partition's state according to both its line and the catalogue.
type standing int

const (
	mayGo          standing = iota // attached; may be detached when its rows are published
	wasNotDetached                 // the process crashed between storing the state and the detach
	isDetached                     // to be dropped
	isGone                         // only its line is left
	wasTaken                       // detached by other means than a Retention
)

func (p partition) stands() standing {
	switch {
	case !p.exists:
		return isGone
	case p.attached && p.state == "attached":
		return mayGo
	case p.attached:
		return wasNotDetached
	case p.state == "attached":
		return wasTaken
	}
	return isDetached
}

// full reads the partitions whose positions were all given out. It leaves out the highest partition, since the next one is
// created after it.
func (r *Dropper) full(ctx context.Context) ([]partition, error) {
	rows, err := r.conn.Query(ctx, `
		SELECT p.name, p.lo, p.hi, p.state, c.oid IS NOT NULL, i.inhrelid IS NOT NULL,
		       CASE WHEN p.done_at <= clock_timestamp() AND p.done_at + $1::interval > clock_timestamp() THEN p.done_at + $1::interval END
		FROM troupe.outbox_partitions p
		CROSS JOIN troupe.outbox_position_seq s
		LEFT JOIN pg_class c ON c.relname = p.name AND c.relnamespace = 'troupe'::regnamespace AND c.relkind = 'r'
		LEFT JOIN pg_inherits i ON i.inhrelid = c.oid AND i.inhparent = 'troupe.outbox'::regclass
		WHERE p.hi - 1 <= s.last_value
		  AND p.hi < (SELECT max(hi) FROM troupe.outbox_partitions)
		ORDER BY p.lo`, r.age)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p partition, err error) {
		err = row.Scan(&p.name, &p.lo, &p.hi, &p.state, &p.exists, &p.attached, &p.until)
		return p, err
	})
}

func isLockTimeout(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "55P03"
}
