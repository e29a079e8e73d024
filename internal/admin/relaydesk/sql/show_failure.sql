-- A failed row with its contents: of several rows of one id the one on which retry_parked.sql and discard_parked.sql act first. Text that
-- cannot be converted to UTF-8 is left out.
SELECT t.position, t.id, t.topic, coalesce(CASE WHEN o.key_bytes IS NULL AND u.reason IS NULL THEN o.key END, '0x' || encode(t.order_key, 'hex'), '') AS key, coalesce(CASE WHEN u.reason IS NULL THEN o.type END, '') AS type,
       t.status, t.attempts, t.max_attempts, t.next_try, t.last_error, t.first_failed_at,
       CASE WHEN o.created_at >= '0001-01-01 00:00Z' AND o.created_at < '10000-01-01 00:00Z' THEN o.created_at END AS created_at,
       coalesce(CASE WHEN u.reason IS NULL THEN o.headers::text END, '{}') AS headers, o.payload
FROM troupe.outbox_failures t
LEFT JOIN troupe.outbox o ON o.position = t.position AND o.id = t.id
CROSS JOIN LATERAL (
  SELECT CASE WHEN getdatabaseencoding() <> 'UTF8' THEN troupe.outbox_unreadable(o.topic, o.key, o.type, o.headers) END
) AS u (reason)
WHERE t.id = @id
  AND (@topic = '' OR t.topic = @topic)
ORDER BY t.status <> 'parked', t.position
LIMIT 1
