package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// partition is a line of troupe.outbox_partitions beside what the catalogue says of its table.
type partition struct {
	name     string
	lo, hi   int64
	state    string
	exists   bool
	attached bool
	until    *time.Time // was done, and has to be kept until then
}

func (p partition) table() string { return pgx.Identifier{"troupe", p.name}.Sanitize() }

// standing is what a partition's line and the catalogue mean together.
type standing int

const (
	mayGo          standing = iota // attached
	wasNotDetached                 // a crash between the note and the detach
	isDetached                     // and is to be dropped
	isGone                         // and its line is left
	wasTaken                       // detached by somebody else
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

// full reads the partitions of which every position was given out, but for the highest: the next is made behind it.
func (r *Retention) full(ctx context.Context) ([]partition, error) {
	rows, err := r.conn.Query(ctx, `
		SELECT p.name, p.lo, p.hi, p.state, c.oid IS NOT NULL, i.inhrelid IS NOT NULL,
		       CASE WHEN p.done_at + $1::interval > clock_timestamp() THEN p.done_at + $1::interval END
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
