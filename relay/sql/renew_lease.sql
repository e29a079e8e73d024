-- Renews the lease. In the same round trip it returns whether the outbox is paused, and whether a claim above @low would find a row. It
-- returns no row if the term is over or the layout has changed.
WITH lead AS MATERIALIZED (
  SELECT layout, paused_at
  FROM troupe.relay_leases
  WHERE shard = 0
    AND @shard > 0
  FOR SHARE
)
UPDATE troupe.relay_leases
SET expires_at = clock_timestamp() + @length::interval,
    slot       = @slot
WHERE shard = @shard
  AND holder = @holder
  AND term = @term
  AND (@shard <= 0 OR layout = (SELECT layout FROM lead))
RETURNING CASE WHEN shard > 0 THEN (SELECT paused_at FROM lead) ELSE paused_at END IS NOT NULL AS paused, EXISTS (
  SELECT
  FROM troupe.outbox o
  LEFT JOIN troupe.outbox_failures t ON t.position = o.position AND t.id = o.id
  -- as in claim_rows.sql
  WHERE o.position > (
      SELECT CASE
        WHEN @past::bigint <= @low::bigint
          OR @blocking::text <> (
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
        THEN @low::bigint
        ELSE @past::bigint
      END)
    AND (@shards::int = 1 OR troupe.outbox_shard(o.key, o.key_bytes, o.id, @shards) = @shard)
    AND (@published::pg_snapshot IS NULL OR t.position IS NOT NULL
         OR NOT ((pg_visible_in_snapshot(o.xid, @published)
           OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @published))
           AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @published)))
    AND (@sweep::pg_snapshot IS NULL OR pg_visible_in_snapshot(o.xid, @sweep) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @sweep))
    AND (t.position IS NULL OR t.status = 'waiting' OR t.status = 'retrying' AND t.next_try <= clock_timestamp())
    AND NOT EXISTS (
      SELECT
      FROM troupe.outbox_failures ahead
      WHERE ahead.order_key = troupe.outbox_order_key(o.key, o.key_bytes)
        AND ahead.status <> 'waiting'
        AND ahead.position < o.position)
)
