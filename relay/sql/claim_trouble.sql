-- Rows in trouble that may go out now, lowest first: due, or waiting for nothing any more. For a stream, which tells each
-- row only once.
SELECT o.position, o.id, o.topic, o.key, o.key_bytes, o.type, o.headers, o.raw_headers, o.payload, o.created_at,
       true AS troubled, t.attempts, clock_timestamp() - t.first_failed_at AS troubled_for
FROM troupe.outbox_trouble t
JOIN troupe.outbox o ON o.position = t.position AND o.id = t.id
WHERE (t.status = 'waiting' OR t.status = 'retrying' AND t.next_try <= clock_timestamp())
  AND NOT EXISTS (
    SELECT
    FROM troupe.outbox_trouble ahead
    WHERE ahead.order_key = t.order_key
      AND ahead.status <> 'waiting'
      AND ahead.position < t.position)
ORDER BY t.position
LIMIT @rows
