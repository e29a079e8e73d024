-- What claim_rows.sql would give next had it gone on at that time: the rows behind @after that its snapshot sees, where
-- nothing of the shard is in trouble. What became visible since waits for the next claim from the lowest row: a row
-- that commits late may stand before @after, and nothing that was written after it may overtake it.
SELECT position, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at
FROM (
  SELECT o.position, o.id, o.topic, o.key, o.key_bytes, o.type, o.headers, o.raw_headers, o.payload, o.created_at,
         size.bytes,
         sum(size.bytes) OVER (ORDER BY o.position ROWS UNBOUNDED PRECEDING) AS bytes_so_far
  FROM troupe.outbox o
  CROSS JOIN LATERAL (
    SELECT coalesce(octet_length(o.payload), 0) + pg_column_size(o.headers) + coalesce(octet_length(o.raw_headers), 0)
  ) AS size (bytes)
  WHERE o.position > @after
    AND (@shards::int = 1 OR troupe.outbox_shard(o.key, o.key_bytes, o.id, @shards) = @shard)
    AND pg_visible_in_snapshot(o.xid, @snapshot::text::pg_snapshot)
    AND (@published::pg_snapshot IS NULL OR NOT pg_visible_in_snapshot(o.xid, @published))
    AND (@sweep::pg_snapshot IS NULL OR pg_visible_in_snapshot(o.xid, @sweep))
  ORDER BY o.position
  LIMIT @rows
) AS next
WHERE bytes_so_far - bytes <= @bytes
ORDER BY position
