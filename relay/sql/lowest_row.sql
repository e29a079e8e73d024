-- The position below which nothing of the shard is left to publish, given that nothing new can appear up to @newest.
SELECT coalesce(min(o.position) - 1, @newest)
FROM troupe.outbox o
LEFT JOIN troupe.outbox_trouble t ON t.position = o.position
WHERE o.position > @low
  AND o.position <= @newest
  AND (@shards::int = 1 OR troupe.outbox_shard(o.key, o.key_bytes, o.id, @shards) = @shard)
  AND (@published::pg_snapshot IS NULL OR t.position IS NOT NULL OR NOT pg_visible_in_snapshot(o.xid, @published))
