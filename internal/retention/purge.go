package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Purge deletes published rows of an outbox that is not troupe.outbox: a table that relays read from the log by mapping its
// columns. By default such a table is not purged: in many cases the program that created it deletes its rows. Table and
// Position are required, and CreatedAt unless Age is negative.
//
// A row is deleted when it was published, its position is not in troupe.outbox_trouble, and it is older than Age. With XID, a
// row counts as published when the confirmed snapshot sees that transaction id. Without XID, it counts as published when the
// transaction that wrote it last is older than all transactions that were open in the snapshot: later, but never wrong.
//
// It needs SELECT and DELETE on the table, and SELECT on troupe.outbox_trouble.
type Purge struct {
	Table     pgx.Identifier
	Position  string        // column with an index, whose order is about the order in which rows were written
	XID       string        // column of type xid8 with the default pg_current_xact_id(); "": none
	CreatedAt string        // column of type timestamptz
	Age       time.Duration // default 1 h; negative: none
	Batch     int           // rows per statement, which is a transaction of its own; default 1000, at most 10,000
	Pause     time.Duration // time between two statements, so that other sessions get the table; default 100 ms; negative: none
	Limit     int           // rows per call; default 100,000
}

// Run deletes rows in the order of their positions until it reaches rows that must stay, or Limit. It returns the number of
// deleted rows, also with an error. Without a confirmed snapshot it does nothing.
func (p Purge) Run(ctx context.Context, pool *pgxpool.Pool, published Published) (deleted int64, err error) {
	if p.Age == 0 {
		p.Age = time.Hour
	}
	if p.Batch == 0 {
		p.Batch = 1000
	}
	if p.Pause == 0 {
		p.Pause = 100 * time.Millisecond
	}
	if p.Limit == 0 {
		p.Limit = 100_000
	}
	if err := p.check(); err != nil {
		return 0, fmt.Errorf("outbox: purge: %w", err)
	}
	if published == "" {
		return 0, nil
	}
	deleted, err = p.run(ctx, pool, published)
	if err != nil {
		return deleted, fmt.Errorf("outbox: purge %s: %w", p.Table.Sanitize(), err)
	}
	return deleted, nil
}

func (p Purge) check() error {
	switch {
	case len(p.Table) == 0 || p.Position == "":
		return errors.New("no table, or no column for the position")
	case p.Age > 0 && p.CreatedAt == "":
		return errors.New("an age, and no column for the time: name it, or let the age be negative")
	case p.Batch < 1 || p.Batch > 10_000:
		return fmt.Errorf("batch %d: want 1 to 10000", p.Batch)
	case p.Limit < p.Batch:
		return fmt.Errorf("limit %d: want the batch of %d or more", p.Limit, p.Batch)
	}
	return nil
}

func (p Purge) run(ctx context.Context, pool *pgxpool.Pool, published Published) (deleted int64, err error) {
	kind, err := p.kind(ctx, pool, published)
	if err != nil {
		return 0, err
	}
	from := (*string)(nil)
	for deleted < int64(p.Limit) {
		var looked, gone int64
		err := pool.QueryRow(ctx, p.statement(kind, from == nil), pgx.NamedArgs{
			"published": string(published), "age": max(p.Age, 0), "rows": p.Batch, "from": from,
		}).Scan(&looked, &gone, &from)
		if err != nil {
			return deleted, err
		}
		deleted += gone
		if gone == 0 || looked < int64(p.Batch) {
			return deleted, nil
		}
		select {
		case <-ctx.Done():
			return deleted, ctx.Err()
		case <-time.After(p.Pause):
		}
	}
	return deleted, nil
}

// kind returns the SQL type of the column Position.
func (p Purge) kind(ctx context.Context, pool *pgxpool.Pool, published Published) (kind string, err error) {
	var ours bool
	err = pool.QueryRow(ctx, `
		SELECT format_type(atttypid, atttypmod),
		       pg_snapshot_xmax($3::text::pg_snapshot) <= pg_snapshot_xmax(pg_current_snapshot())
		FROM pg_attribute
		WHERE attrelid = $1::text::regclass AND attname = $2 AND NOT attisdropped`,
		p.Table.Sanitize(), p.Position, string(published)).Scan(&kind, &ours)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", fmt.Errorf("it has no column %q", p.Position)
	case err == nil && !ours:
		return "", fmt.Errorf("the snapshot %s is of another server", published)
	}
	return kind, err
}

// statement returns a statement that deletes the deletable rows among the next ones after @from. It contains the condition
// twice, since two rows may have the same position.
func (p Purge) statement(kind string, first bool) string {
	column := func(name string) string { return "x." + pgx.Identifier{name}.Sanitize() }
	// A tuple's xmin has 32 bits. Its full transaction id is the highest one with these low bits that was already assigned.
	// The xid of a savepoint is higher than its transaction's.
	done := `now.xid - ((now.xid - x.xmin::text::bigint) & 4294967295)
           < pg_snapshot_xmin(@published::text::pg_snapshot)::text::bigint`
	if p.XID != "" {
		done = "pg_visible_in_snapshot(" + column(p.XID) + ", @published::text::pg_snapshot)"
	}
	if p.CreatedAt != "" {
		done += " AND " + column(p.CreatedAt) + " <= clock_timestamp() - @age::interval"
	} else {
		done += " AND @age::interval IS NOT NULL"
	}
	behind := "@from::text IS NULL"
	if !first {
		behind = column(p.Position) + " > @from::text::" + kind
	}
	return fmt.Sprintf(`
WITH now AS MATERIALIZED (
  SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid
), looked AS MATERIALIZED (
  SELECT %[2]s AS position, %[3]s AS done
  FROM %[1]s x, now
  WHERE %[4]s
    AND NOT EXISTS (SELECT FROM troupe.outbox_trouble t WHERE t.position::text = %[2]s::text)
  ORDER BY %[2]s
  LIMIT @rows
), gone AS (
  DELETE FROM %[1]s x
  USING now
  WHERE %[2]s = ANY (ARRAY(SELECT position FROM looked WHERE done))
    AND %[3]s
  RETURNING 1
)
SELECT (SELECT count(*) FROM looked), (SELECT count(*) FROM gone),
       (SELECT position::text FROM looked ORDER BY position DESC LIMIT 1)`,
		p.Table.Sanitize(), column(p.Position), done, behind)
}
