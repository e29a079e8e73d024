-- Returns two positions, given that no new row can appear up to @newest. Up to low no row of the shard is left to publish. Up to past all
-- rows that are left failed, or wait behind failed rows; that is valid while the digest of the rows that others wait behind is unchanged.
WITH blocking AS MATERIALIZED (
  SELECT md5(coalesce(string_agg(position::text, ' ' ORDER BY position), '')) AS positions
  FROM troupe.outbox_failures
  WHERE status <> 'waiting'
)
SELECT coalesce((
         SELECT o.position - 1
         FROM troupe.outbox o
         LEFT JOIN troupe.outbox_failures t ON t.position = o.position AND t.id = o.id
         WHERE o.position > @low
           AND o.position <= @newest
           AND (@shards::int = 1 OR troupe.outbox_shard(o.key, o.key_bytes, o.id, @shards) = @shard)
           AND (@published::pg_snapshot IS NULL OR t.position IS NOT NULL OR NOT ((pg_visible_in_snapshot(o.xid, @published) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @published)) AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @published)))
         ORDER BY o.position
         LIMIT 1), @newest) AS low,
       coalesce((
         SELECT o.position - 1
         FROM troupe.outbox o
         LEFT JOIN troupe.outbox_failures t ON t.position = o.position AND t.id = o.id
         WHERE o.position > CASE WHEN blocking.positions = @blocking::text THEN greatest(@low, @past::bigint) ELSE @low END
           AND o.position <= @newest
           AND (@shards::int = 1 OR troupe.outbox_shard(o.key, o.key_bytes, o.id, @shards) = @shard)
           AND (@published::pg_snapshot IS NULL OR t.position IS NOT NULL OR NOT ((pg_visible_in_snapshot(o.xid, @published) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @published)) AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @published)))
           AND (t.position IS NULL OR t.status = 'waiting')
           AND NOT EXISTS (
             SELECT
             FROM troupe.outbox_failures ahead
             WHERE ahead.order_key = troupe.outbox_order_key(o.key, o.key_bytes)
               AND ahead.status <> 'waiting'
               AND ahead.position < o.position)
         ORDER BY o.position
         LIMIT 1), @newest) AS past,
       blocking.positions
FROM blocking
