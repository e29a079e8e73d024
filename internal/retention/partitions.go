package retention

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Partitions configures how the table is partitioned by position.
type Partitions struct {
	Size  int64 // positions per partition; default 5,000,000
	Ahead int   // number of whole partitions to keep beyond the newest position; default 3
}

// partitionsLock is the advisory lock that prevents two relays from creating the same partition.
const partitionsLock = 0x74726f757065 // "troupe"

// Ensure creates the partitions that are missing ahead of the sequence, and returns how many positions are left before the
// last bound; an insert beyond it fails. The role must own the table. Writers are not blocked: a partition is created as a
// table of its own and then attached, since CREATE TABLE … PARTITION OF waits for every open writer and makes the others wait
// behind it.
func (p Partitions) Ensure(ctx context.Context, pool *pgxpool.Pool) (headroom int64, err error) {
	if p.Size == 0 {
		p.Size = 5_000_000
	}
	if p.Ahead == 0 {
		p.Ahead = 3
	}
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		headroom, err = p.headroom(ctx, conn)
		if err != nil || headroom >= p.Size*int64(p.Ahead) {
			return err
		}
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(partitionsLock)); err != nil {
			return err
		}
		defer func() {
			_, _ = conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(partitionsLock)) // the session's end unlocks too
		}()
		for {
			headroom, err = p.headroom(ctx, conn)
			if err != nil || headroom >= p.Size*int64(p.Ahead) {
				return err
			}
			if err := p.make(ctx, conn); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return headroom, fmt.Errorf("outbox: make partitions: %w", err)
	}
	return headroom, nil
}

func (p Partitions) headroom(ctx context.Context, conn *pgxpool.Conn) (n int64, err error) {
	err = conn.QueryRow(ctx, `
		SELECT (SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions WHERE state = 'attached') - last_value
		FROM troupe.outbox_position_seq`).Scan(&n)
	return n, err
}

// make adds one partition after the last one, in one transaction, so that a crash leaves no part of it.
func (p Partitions) make(ctx context.Context, conn *pgxpool.Conn) error {
	var lo int64
	if err := conn.QueryRow(ctx, `
		SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions`).Scan(&lo); err != nil {
		return err
	}
	name, bounds := "outbox_"+strconv.FormatInt(lo, 10), [2]int64{lo, lo + p.Size}
	table := pgx.Identifier{"troupe", name}.Sanitize()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, sql := range []string{
			"SET LOCAL lock_timeout = '2s'",
			fmt.Sprintf("CREATE TABLE %s (LIKE troupe.outbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES, CHECK (position >= %d AND position < %d))",
				table, bounds[0], bounds[1]),
			fmt.Sprintf("ALTER TABLE troupe.outbox ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)", table, bounds[0], bounds[1]),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO troupe.outbox_partitions (name, lo, hi) VALUES ($1, $2, $3)`, name, bounds[0], bounds[1])
		return err
	})
}
