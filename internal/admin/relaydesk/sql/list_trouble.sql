-- Rows in trouble above a position, lowest first; with @status only those.
SELECT t.position, t.id, t.topic, coalesce(CASE WHEN o.key_bytes IS NULL THEN o.key END, '0x' || encode(t.order_key, 'hex'), '') AS key, coalesce(o.type, '') AS type,
       t.status, t.attempts, t.max_attempts, t.next_try, t.last_error, t.first_failed_at,
       CASE WHEN isfinite(o.created_at) THEN o.created_at END AS created_at
FROM troupe.outbox_trouble t
LEFT JOIN troupe.outbox o ON o.position = t.position AND o.id = t.id
WHERE t.position > @after
  AND (@status::text = '' OR t.status = @status)
  AND (@topic::text = '' OR t.topic = @topic)
ORDER BY t.position
LIMIT @rows
