-- Renews the leases of one process. In the same round trip it returns which of the shards another relay requests (wanted), and in which
-- shards a claim above the mark would find a row (found). may_be_free means that a shard is free, or that another relay holds at least two
-- shards more. behind means that there are rows above the mark, perhaps of other relays' shards. It returns no row for a shard whose term
-- is over, and none if the layout has changed.
WITH lead AS MATERIALIZED (
  SELECT layout, shards, paused_at
  FROM troupe.relay_leases
  WHERE shard = 0
  FOR SHARE -- so that a renewal is either before or after a change of the layout
), may_be_free AS MATERIALIZED (
  SELECT (SELECT count(*) FROM troupe.relay_leases l WHERE l.shard >= 0 AND l.shard < lead.shards AND l.layout = lead.layout
            AND l.expires_at > clock_timestamp() AND l.expires_at <= clock_timestamp() + @longest::interval) -- as in read_lease.sql
           < lead.shards
      OR EXISTS (
           SELECT
           FROM troupe.relay_leases l
           WHERE l.shard >= 0 AND l.holder <> @holder
             AND l.expires_at > clock_timestamp() AND l.expires_at <= clock_timestamp() + @longest::interval
           GROUP BY l.holder
           HAVING count(*) >= cardinality(@shard_list::int[]) + 2) AS may_be_free
  FROM lead
)
UPDATE troupe.relay_leases l
SET expires_at = clock_timestamp() + @length::interval
FROM unnest(@shard_list::int[], @terms::bigint[], @lows::bigint[], @pasts::bigint[], @blockings::text[], @published::text[])
       AS mine (shard, term, low, past, blocking, published), lead, may_be_free
WHERE l.shard = mine.shard
  AND l.holder = @holder
  AND l.term = mine.term
  AND l.layout = lead.layout
  AND l.expires_at > clock_timestamp() -- one that was released meanwhile is not taken back
RETURNING l.shard, l.wanted IS NOT NULL AS wanted, may_be_free.may_be_free, EXISTS (
  SELECT
  FROM troupe.outbox o
  LEFT JOIN troupe.outbox_failures t ON t.position = o.position AND t.id = o.id
  -- as in claim_rows.sql
  WHERE o.position > (
      SELECT CASE
        WHEN mine.past <= mine.low
          OR mine.blocking <> (
            SELECT md5(coalesce(string_agg(position::text, ' ' ORDER BY position), ''))
            FROM troupe.outbox_failures
            WHERE status <> 'waiting')
          OR EXISTS (
            SELECT
            FROM troupe.outbox_failures due
            WHERE due.status = 'retrying' AND due.next_try <= clock_timestamp()
              AND NOT EXISTS (
                SELECT
                FROM troupe.outbox_failures ahead
                WHERE ahead.order_key = due.order_key
                  AND ahead.status <> 'waiting'
                  AND ahead.position < due.position))
        THEN mine.low
        ELSE mine.past
      END)
    AND troupe.outbox_shard(o.key, o.key_bytes, o.id, lead.shards) = l.shard
    AND (mine.published IS NULL OR t.position IS NOT NULL OR NOT ((pg_visible_in_snapshot(o.xid, mine.published::pg_snapshot)
           OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), mine.published::pg_snapshot))
           AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), mine.published::pg_snapshot)))
    AND (t.position IS NULL OR t.status = 'waiting' OR t.status = 'retrying' AND t.next_try <= clock_timestamp())
    AND NOT EXISTS (
      SELECT
      FROM troupe.outbox_failures ahead
      WHERE ahead.order_key = troupe.outbox_order_key(o.key, o.key_bytes)
        AND ahead.status <> 'waiting'
        AND ahead.position < o.position)
) AS found,
  coalesce((SELECT max(position) FROM troupe.outbox), 0) > mine.low AS behind,
  lead.paused_at IS NOT NULL AS paused
