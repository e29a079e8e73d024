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

// lockPartitions prevents two relays from creating the same partition. It is no advisory lock, which each role could take that may
// connect: this one needs rights that only the owner has. It does not conflict with a Dropper.
const lockPartitions = "LOCK TABLE troupe.outbox_partitions IN SHARE UPDATE EXCLUSIVE MODE"

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

func (p Partitions) headroom(ctx context.Context, conn querier) (n int64, err error) {
	err = conn.QueryRow(ctx, `
		SELECT (SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions WHERE state = 'attached') - last_value
		FROM troupe.outbox_position_seq`).Scan(&n)
	return n, err
}

// A querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// make adds one partition after the last one, in one transaction, so that a crash leaves no part of it. It adds none if another relay
// has made enough meanwhile.
func (p Partitions) make(ctx context.Context, conn *pgxpool.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'; "+lockPartitions); err != nil {
			return err
		}
		headroom, err := p.headroom(ctx, tx)
		if err != nil || headroom >= p.Size*int64(p.Ahead) {
			return err
		}
		var lo int64
		if err := tx.QueryRow(ctx, "SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions").Scan(&lo); err != nil {
			return err
		}
		name, bounds := "outbox_"+strconv.FormatInt(lo, 10), [2]int64{lo, lo + p.Size}
		table := pgx.Identifier{"troupe", name}.Sanitize()
		for _, sql := range []string{
			fmt.Sprintf("CREATE TABLE %s (LIKE troupe.outbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES, CHECK (position >= %d AND position < %d))",
				table, bounds[0], bounds[1]),
			fmt.Sprintf("ALTER TABLE troupe.outbox ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)", table, bounds[0], bounds[1]),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := giveToOwner(ctx, tx, table); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO troupe.outbox_partitions (name, lo, hi) VALUES ($1, $2, $3)", name, bounds[0], bounds[1])
		return err
	})
}

// giveToOwner makes the owner of troupe.outbox the owner of a new partition, which belongs to the role that created it. That role may be
// only a member of the owner. Then the owner and its other members could neither change the outbox nor drop the partition, and DROP OWNED
// BY for that role would drop the partition with its rows. The partition stays with a member that may not
// SET ROLE to the owner, and if the owner may not create tables in the schema.
func giveToOwner(ctx context.Context, tx pgx.Tx, table string) error {
	var owner string
	err := tx.QueryRow(ctx, `
		SELECT CASE
		         WHEN pg_get_userbyid(relowner) <> current_user
		           AND has_schema_privilege(relowner, 'troupe', 'CREATE')
		           AND pg_has_role(relowner, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
		         THEN pg_get_userbyid(relowner)::text
		         ELSE ''
		       END
		FROM pg_class
		WHERE oid = 'troupe.outbox'::regclass`).Scan(&owner)
	if err != nil || owner == "" {
		return err
	}
	_, err = tx.Exec(ctx, fmt.Sprintf("ALTER TABLE %s OWNER TO %s", table, pgx.Identifier{owner}.Sanitize()))
	return err
}
