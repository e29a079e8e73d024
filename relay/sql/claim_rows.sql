-- Returns the lowest rows of the shard that may be sent now: at most @rows, and at most @bytes of their columns, uncompressed, and the row
-- that exceeds it. Blocking rows are failed rows that others wait behind. It leaves out:
--   rows that are parked or wait for their next try, and rows behind such a row of their key;
--   rows that a stream has published: @published sees their xid, and also the transaction that inserted them here, since a restored row
--   may have any xid;
--   before a stream begins, rows that it will deliver: @sweep does not see them;
--   of the failed rows that are due, all but the @retried that are due the longest, so that there is room for new rows;
--   rows up to @past, while the digest of the blocking rows is @blocking and none of them is due: see lowest_row.sql.
-- Each returned row also has the snapshot of the statement, and the digest of the blocking rows: see read_on.sql.
WITH blocking AS MATERIALIZED (
  SELECT md5(coalesce(string_agg(position::text, ' ' ORDER BY position), '')) AS positions
  FROM troupe.outbox_failures
  WHERE status <> 'waiting'
), retried AS MATERIALIZED (
  SELECT due.position
  FROM troupe.outbox_failures due
  WHERE due.status = 'retrying' AND due.next_try <= clock_timestamp()
    AND (@shards::int = 1 OR troupe.outbox_shard(NULL, due.order_key, due.id, @shards) = @shard)
    AND NOT EXISTS (
      SELECT
      FROM troupe.outbox_failures ahead
      WHERE ahead.order_key = due.order_key
        AND ahead.status <> 'waiting'
        AND ahead.position < due.position)
    AND EXISTS (SELECT FROM troupe.outbox o WHERE o.position = due.position AND o.id = due.id)
  ORDER BY due.next_try
  LIMIT @retried
)
SELECT position, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at, failed_before, attempts, failing_for, max_attempts,
       (SELECT pg_current_snapshot()::text) AS snapshot,
       (SELECT positions FROM blocking) AS blocking
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
  WHERE o.position > (
      SELECT CASE
        WHEN @past::bigint <= @low::bigint
          OR @blocking::text <> (SELECT positions FROM blocking)
          OR EXISTS (SELECT FROM retried)
        THEN @low::bigint
        ELSE @past::bigint
      END)
    AND (@shards::int = 1 OR troupe.outbox_shard(o.key, o.key_bytes, o.id, @shards) = @shard)
    AND (@published::pg_snapshot IS NULL OR t.position IS NOT NULL
         OR NOT ((pg_visible_in_snapshot(o.xid, @published)
           OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @published))
           AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @published)))
    AND (@sweep::pg_snapshot IS NULL OR pg_visible_in_snapshot(o.xid, @sweep) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @sweep))
    AND (t.position IS NULL OR t.status = 'waiting' OR t.position IN (SELECT r.position FROM retried r))
    AND NOT EXISTS (
      SELECT
      FROM troupe.outbox_failures ahead
      WHERE ahead.order_key = troupe.outbox_order_key(o.key, o.key_bytes)
        AND ahead.status <> 'waiting'
        AND ahead.position < o.position)
  ORDER BY o.position
  LIMIT @rows
) AS lowest
WHERE bytes_so_far - bytes <= @bytes
ORDER BY position
