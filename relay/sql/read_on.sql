-- Continues the claim of claim_rows.sql: returns the next rows above position @after that are visible in the snapshot of that claim. It
-- leaves three kinds of rows to the next claim_rows.sql, which begins at the lowest row:
--   rows that became visible later: a row that commits late may be below @after, and no row written after it may overtake it;
--   failed rows that are due;
--   rows that wait behind others.
-- It returns no row if the digest of the blocking rows is not @blocking: rows below @after may have become free.
SELECT position, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at, failed_before, attempts, failing_for, max_attempts
FROM (
  SELECT o.position, o.id, o.topic, o.key, o.key_bytes, o.type, o.headers, o.raw_headers, o.payload, o.created_at,
         t.position IS NOT NULL AS failed_before,
         coalesce(t.attempts, 0) AS attempts,
         coalesce(extract(epoch FROM clock_timestamp() - t.first_failed_at), 0)::float8 AS failing_for,
         coalesce(t.max_attempts, 0) AS max_attempts,
         size.bytes,
         sum(size.bytes) OVER (ORDER BY o.position ROWS UNBOUNDED PRECEDING) AS bytes_so_far
  FROM troupe.outbox o
  LEFT JOIN troupe.outbox_failures t ON t.position = o.position AND t.id = o.id
  CROSS JOIN LATERAL (
    SELECT coalesce(octet_length(o.payload), 0) + coalesce(octet_length(o.raw_headers), 0) + coalesce(octet_length(o.key), 0)
           + coalesce(octet_length(o.key_bytes), 0) + octet_length(o.topic) + octet_length(o.type)
           + CASE WHEN pg_column_compression(o.headers) IS NULL THEN pg_column_size(o.headers) ELSE octet_length(o.headers::text) END
  ) AS size (bytes)
  WHERE o.position > @after
    AND @blocking::text = (
      SELECT md5(coalesce(string_agg(position::text, ' ' ORDER BY position), ''))
      FROM troupe.outbox_failures
      WHERE status <> 'waiting')
    AND (@shards::int = 1 OR troupe.outbox_shard(o.key, o.key_bytes, o.id, @shards) = @shard)
    AND (pg_visible_in_snapshot(o.xid, @snapshot::text::pg_snapshot)
         OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @snapshot::text::pg_snapshot))
    AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @snapshot::text::pg_snapshot)
    AND (@published::pg_snapshot IS NULL OR t.position IS NOT NULL
         OR NOT ((pg_visible_in_snapshot(o.xid, @published)
           OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @published))
           AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @published)))
    AND (@sweep::pg_snapshot IS NULL OR pg_visible_in_snapshot(o.xid, @sweep) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @sweep))
    AND (t.position IS NULL OR t.status = 'waiting')
    AND NOT EXISTS (
      SELECT
      FROM troupe.outbox_failures ahead
      WHERE ahead.order_key = troupe.outbox_order_key(o.key, o.key_bytes)
        AND ahead.status <> 'waiting'
        AND ahead.position < o.position)
  ORDER BY o.position
  LIMIT @rows
) AS next
WHERE bytes_so_far - bytes <= @bytes
ORDER BY position
