-- Rows in trouble that may go out now, lowest first: due, or, from position @from on, waiting for nothing any more. For a
-- stream, which tells each row only once.
SELECT o.position, o.id, o.topic, o.key, o.key_bytes, o.type, o.headers, o.raw_headers, o.payload, o.created_at,
       true AS troubled, t.attempts, clock_timestamp() - t.first_failed_at AS troubled_for, t.max_attempts
FROM (
  (SELECT t.position, t.id, t.attempts, t.first_failed_at, t.max_attempts
   FROM troupe.outbox_trouble t
   WHERE t.status = 'retrying' AND t.next_try <= clock_timestamp()
     AND NOT EXISTS (
       SELECT
       FROM troupe.outbox_trouble ahead
       WHERE ahead.order_key = t.order_key
         AND ahead.status <> 'waiting'
         AND ahead.position < t.position)
     AND EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
   ORDER BY t.next_try
   LIMIT @rows / 2)
  UNION ALL
  (SELECT t.position, t.id, t.attempts, t.first_failed_at, t.max_attempts
   FROM troupe.outbox_trouble t
   WHERE t.status = 'waiting'
     AND t.position >= @from
     AND NOT EXISTS (
       SELECT
       FROM troupe.outbox_trouble ahead
       WHERE ahead.order_key = t.order_key
         AND ahead.status <> 'waiting'
         AND ahead.position < t.position)
     AND EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
   ORDER BY t.position
   LIMIT @rows)
) AS t
JOIN troupe.outbox o ON o.position = t.position AND o.id = t.id
ORDER BY t.position
