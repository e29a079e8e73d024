package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Stats is what an operator asks of an outbox first.
type Stats struct {
	// Pending is how many rows are not published, those in trouble included. Where published rows stay (the WAL source),
	// they are told apart by the confirmed snapshot, which may be some seconds old, and among the newest 100,000 rows:
	// what a transaction adds that was open while so many others came is missing until it is in trouble or published.
	// Counted up to 100,000.
	Pending  int64         `json:"pending"`
	Bytes    int64         `json:"bytes"`    // of the payloads of what was counted, but for rows in trouble below it
	Oldest   time.Duration `json:"oldest"`   // age of the lowest row of those; 0 when there is none
	Retrying int64         `json:"retrying"` // rows that wait for their next try
	Parked   int64         `json:"parked"`   // rows that a person must look at
	Headroom int64         `json:"headroom"` // positions left in the partitions that there are
}

// readStats walks down from the newest row, since what is not published is there, and looks at no more than 100,000:
// the rows below may be millions that were published. Where nobody confirmed a snapshot all rows are pending, and the
// oldest is the lowest there is. A row in trouble is counted by its line, wherever the row is.
const readStats = `
WITH state AS MATERIALIZED (
  SELECT (SELECT published FROM troupe.relay_state WHERE published IS NOT NULL ORDER BY updated_at DESC LIMIT 1) AS published
), newest AS (
  SELECT position, id, xid, xmin, coalesce(octet_length(payload), 0) AS bytes
  FROM troupe.outbox
  ORDER BY position DESC
  LIMIT 100000
), pending AS (
  SELECT count(*) FILTER (WHERE t.position IS NULL) AS rows,
         coalesce(sum(n.bytes), 0)::bigint AS bytes,
         min(n.position) AS lowest
  FROM newest n
  CROSS JOIN state s
  LEFT JOIN troupe.outbox_trouble t USING (position, id)
  WHERE t.position IS NOT NULL OR s.published IS NULL
     OR NOT (pg_visible_in_snapshot(n.xid, s.published) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(n.xid, n.xmin), s.published))
), trouble AS (
  SELECT count(*) AS rows,
         count(*) FILTER (WHERE status = 'retrying') AS retrying,
         count(*) FILTER (WHERE status = 'parked') AS parked,
         min(position) AS lowest
  FROM troupe.outbox_trouble
), lowest AS (
  SELECT CASE
           WHEN (SELECT published FROM state) IS NULL
           THEN (SELECT position FROM troupe.outbox ORDER BY position LIMIT 1)
           ELSE least(pending.lowest, trouble.lowest)
         END AS position
  FROM pending, trouble
)
SELECT least(pending.rows + trouble.rows, 100000), pending.bytes,
       (SELECT extract(epoch FROM clock_timestamp() - created_at)::float8
        FROM troupe.outbox WHERE position = (SELECT position FROM lowest) AND isfinite(created_at)),
       trouble.retrying, trouble.parked,
       (SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions WHERE state = 'attached')
         - (SELECT last_value FROM troupe.outbox_position_seq)
FROM pending, trouble`

// ReadStats takes one round trip, and looks at 100,000 rows at most, so that it stays cheap behind any backlog and above
// any number of rows that stay.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (Stats, error) {
	var s Stats
	var oldest *float64
	err := pool.QueryRow(ctx, readStats).Scan(&s.Pending, &s.Bytes, &oldest, &s.Retrying, &s.Parked, &s.Headroom)
	if err != nil {
		return Stats{}, fmt.Errorf("outbox: read statistics: %w", err)
	}
	if oldest != nil {
		s.Oldest = max(0, time.Duration(*oldest*float64(time.Second)))
	}
	return s, nil
}
