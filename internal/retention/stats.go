package retention

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stats summarises the state of an outbox.
type Stats struct {
	// Pending counts the rows that are not published, including failed rows, up to 100,000. Where published rows stay
	// (source wal), rows are recognised as published by the confirmed snapshot, which may be some seconds old, and only among
	// the newest 100,000 rows: the rows of a transaction that stayed open while that many other rows were written are not
	// counted, unless they are in failed.
	Pending int64         `json:"pending"`
	Bytes   int64         `json:"bytes"`  // of the counted rows' payloads, without failed rows below the newest 100,000
	Oldest  time.Duration `json:"oldest"` // age of the lowest pending row; 0 when there is none
	// OldestUntried is the age of the lowest pending row that is no failed row; 0 when there is none. A relay that works publishes
	// these rows soon, also while failed rows wait for an operator. Below the newest 100,000 rows it is the lowest row of all.
	OldestUntried time.Duration `json:"oldest_untried"`
	Failed        int64         `json:"failed"`   // failed rows, including rows that wait behind another of their key
	Retrying      int64         `json:"retrying"` // rows that wait for their next try
	Parked        int64         `json:"parked"`   // rows that an operator must look at
	Headroom      int64         `json:"headroom"` // positions left in the existing partitions
}

// readStats walks down from the newest row, since unpublished rows are the newest, and reads at most 100,000: the rows below
// may be millions of published ones. If no snapshot is confirmed, all rows are pending, and the oldest is the lowest row of
// the table. A failed row is counted by its line in outbox_failures, wherever the row is. A snapshot of another cluster, in a copy or a
// restored dump, confirms nothing.
const readStats = `
WITH state AS MATERIALIZED (
  SELECT (SELECT CASE WHEN system_id = (SELECT system_identifier::text FROM pg_control_system()) THEN published END
          FROM troupe.relay_state ORDER BY updated_at DESC LIMIT 1) AS published
), newest AS (
  SELECT position, id, xid, xmin, coalesce(octet_length(payload), 0) AS bytes
  FROM troupe.outbox
  ORDER BY position DESC
  LIMIT 100000
), pending AS (
  SELECT count(*) FILTER (WHERE t.position IS NULL) AS rows,
         coalesce(sum(n.bytes), 0)::bigint AS bytes,
         min(n.position) AS lowest,
         min(n.position) FILTER (WHERE t.position IS NULL) AS untried
  FROM newest n
  CROSS JOIN state s
  LEFT JOIN troupe.outbox_failures t USING (position, id)
  WHERE t.position IS NOT NULL OR s.published IS NULL
     OR NOT ((pg_visible_in_snapshot(n.xid, s.published) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(n.xid, n.xmin), s.published))
       AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', n.xmin), s.published))
), failed AS (
  SELECT count(*) AS rows,
         count(*) FILTER (WHERE status = 'retrying') AS retrying,
         count(*) FILTER (WHERE status = 'parked') AS parked,
         min(position) AS lowest
  FROM troupe.outbox_failures
), lowest AS (
  SELECT CASE
           WHEN (SELECT published FROM state) IS NULL
           THEN (SELECT position FROM troupe.outbox ORDER BY position LIMIT 1)
           ELSE least(pending.lowest, failed.lowest)
         END AS position
  FROM pending, failed
), untried AS (
  SELECT CASE
           WHEN (SELECT published FROM state) IS NULL AND (SELECT count(*) FROM newest) = 100000
           THEN (SELECT position FROM lowest)
           ELSE pending.untried
         END AS position
  FROM pending
)
SELECT least(pending.rows + failed.rows, 100000), pending.bytes,
       (SELECT extract(epoch FROM clock_timestamp() - created_at)::float8
        FROM troupe.outbox WHERE position = (SELECT position FROM lowest) AND isfinite(created_at)),
       (SELECT extract(epoch FROM clock_timestamp() - created_at)::float8
        FROM troupe.outbox WHERE position = (SELECT position FROM untried) AND isfinite(created_at)),
       failed.rows, failed.retrying, failed.parked,
       (SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions WHERE state = 'attached')
         - (SELECT last_value FROM troupe.outbox_position_seq)
FROM pending, failed`

// ReadStats reads the statistics in one round trip. It reads at most 100,000 rows, so that it stays cheap with any backlog
// and any number of published rows.
func ReadStats(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (Stats, error) {
	var s Stats
	var oldest, untried *float64
	err := db.QueryRow(ctx, readStats).Scan(&s.Pending, &s.Bytes, &oldest, &untried, &s.Failed, &s.Retrying, &s.Parked, &s.Headroom)
	if err != nil {
		return Stats{}, fmt.Errorf("outbox: read statistics: %w", err)
	}
	s.Oldest, s.OldestUntried = age(oldest), age(untried)
	return s, nil
}

// age returns a number of seconds as a duration; 0 if it is null, or in the future.
func age(seconds *float64) time.Duration {
	if seconds == nil {
		return 0
	}
	return max(0, time.Duration(*seconds*float64(time.Second)))
}

//go:embed sql/read_records.sql
var readRecords string

// RecordStats counts the closed records that were removed from a database so far.
type RecordStats struct {
	Sagas, DeadLetters, Repairs int64
	// PassedAt is when the last complete pass over all kinds of records ended; nil: none has, or all kinds are kept for ever.
	PassedAt *time.Time
}

// ReadRecords reads the counts from troupe.retention.
func ReadRecords(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (s RecordStats, err error) {
	if err = db.QueryRow(ctx, readRecords).Scan(&s.Sagas, &s.DeadLetters, &s.Repairs, &s.PassedAt); err != nil {
		return s, fmt.Errorf("outbox: read the counts of removed records: %w", err)
	}
	return s, nil
}
