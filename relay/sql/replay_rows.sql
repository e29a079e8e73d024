-- Returns the next published rows above @position that are still in the table: at most @rows, and at most @bytes of their
-- columns and the row that exceeds it. Failed rows are left out.
SELECT position, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at
FROM (
  SELECT o.position, o.id, o.topic, o.key, o.key_bytes, o.type, o.headers, o.raw_headers, o.payload, o.created_at,
         size.bytes,
         sum(size.bytes) OVER (ORDER BY o.position ROWS UNBOUNDED PRECEDING) AS bytes_so_far
  FROM troupe.outbox o
  CROSS JOIN LATERAL (
    -- as in claim_rows.sql
    SELECT coalesce(octet_length(o.payload), 0) + coalesce(octet_length(o.raw_headers), 0) + coalesce(octet_length(o.key), 0)
           + coalesce(octet_length(o.key_bytes), 0) + octet_length(o.topic) + octet_length(o.type)
           + CASE WHEN pg_column_compression(o.headers) IS NULL THEN pg_column_size(o.headers) ELSE octet_length(o.headers::text) END
  ) AS size (bytes)
  WHERE position > @position
    AND position <= @last
    AND (pg_visible_in_snapshot(o.xid, @snapshot::text::pg_snapshot)
         OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @snapshot::text::pg_snapshot))
    AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @snapshot::text::pg_snapshot)
    AND (@topic::text = '' OR topic = @topic)
    AND (@since::timestamptz IS NULL OR created_at >= @since)
    AND (@until::timestamptz IS NULL OR created_at < @until)
    AND NOT EXISTS (SELECT FROM troupe.outbox_failures t WHERE t.position = o.position AND t.id = o.id)
  ORDER BY position
  LIMIT @rows
) AS next
WHERE bytes_so_far - bytes <= @bytes
ORDER BY position
