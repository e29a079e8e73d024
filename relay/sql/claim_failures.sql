-- Returns failed rows that may be sent now, lowest position first. It is for a stream, which delivers each row only once. It returns rows
-- of two kinds, and of each kind at most @bytes / 2, and the row that exceeds it:
--   rows that are due for another try, the longest due first;
--   from position @from on, waiting rows whose key is not blocked any more, the lowest first.
-- OFFSET 0 leaves one plan for each of the rows: look up its key in the index of blocking rows. Without statistics of the table the planner
-- would also read the index of all rows, once for each row that waits.
SELECT position, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at, failed_before, attempts, failing_for, max_attempts
FROM (
  SELECT o.position, o.id, o.topic, o.key, o.key_bytes, o.type, o.headers, o.raw_headers, o.payload, o.created_at,
         true AS failed_before, t.attempts, clock_timestamp() - t.first_failed_at AS failing_for, t.max_attempts,
         size.bytes,
         sum(size.bytes) OVER (PARTITION BY t.due ORDER BY t.next_try, t.position ROWS UNBOUNDED PRECEDING) AS bytes_so_far
  FROM (
    (SELECT true AS due, t.position, t.id, t.attempts, t.first_failed_at, t.max_attempts, t.next_try
     FROM troupe.outbox_failures t
     WHERE t.status = 'retrying' AND t.next_try <= clock_timestamp()
       AND NOT EXISTS (
         SELECT
         FROM (
           SELECT b.position
           FROM troupe.outbox_failures b
           WHERE b.order_key = t.order_key AND b.status <> 'waiting'
           OFFSET 0) AS ahead
         WHERE ahead.position < t.position)
       AND EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
     ORDER BY t.next_try
     LIMIT @rows / 2)
    UNION ALL
    (SELECT false AS due, t.position, t.id, t.attempts, t.first_failed_at, t.max_attempts, NULL::timestamptz AS next_try
     FROM troupe.outbox_failures t
     WHERE t.status = 'waiting'
       AND t.position >= @from
       AND NOT EXISTS (
         SELECT
         FROM (
           SELECT b.position
           FROM troupe.outbox_failures b
           WHERE b.order_key = t.order_key AND b.status <> 'waiting'
           OFFSET 0) AS ahead
         WHERE ahead.position < t.position)
       AND EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
     ORDER BY t.position
     LIMIT @rows)
  ) AS t
  JOIN troupe.outbox o ON o.position = t.position AND o.id = t.id
  CROSS JOIN LATERAL (
    SELECT coalesce(octet_length(o.payload), 0) + coalesce(octet_length(o.raw_headers), 0) + coalesce(octet_length(o.key), 0)
           + coalesce(octet_length(o.key_bytes), 0) + octet_length(o.topic) + octet_length(o.type)
           + CASE WHEN pg_column_compression(o.headers) IS NULL THEN pg_column_size(o.headers) ELSE octet_length(o.headers::text) END
  ) AS size (bytes)
) AS ready
WHERE bytes_so_far - bytes <= @bytes / 2
ORDER BY position
