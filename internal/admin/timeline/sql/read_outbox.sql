SELECT o.position, o.id, o.topic, o.key, o.key_bytes, o.type, o.headers, o.raw_headers,
       CASE WHEN octet_length(o.payload) <= @payload_limit THEN o.payload END,
       CASE WHEN isfinite(o.created_at) THEN o.created_at END AS created_at,
       coalesce(octet_length(o.payload), 0),
       s.status, s.attempts,
       coalesce(s.max_attempts, 0),
       coalesce(extract(epoch FROM s.next_try - clock_timestamp()), 0)::float8,
       left(coalesce(s.last_error, ''), 2000),
       coalesce(b.position, 0), coalesce(b.status, ''), left(coalesce(b.last_error, ''), 2000)
FROM troupe.outbox o
JOIN troupe.outbox_status s USING (position)
LEFT JOIN LATERAL (
  SELECT t.position, t.status, t.last_error
  FROM troupe.outbox_trouble t
  WHERE t.order_key = troupe.outbox_order_key(o.key, o.key_bytes)
    AND t.status <> 'waiting'
    AND t.position < o.position
  ORDER BY t.position
  LIMIT 1
) b ON true
WHERE o.key = @text
   OR o.key_bytes = @bytes
   OR o.id = @id::uuid
   OR o.headers ->> 'ce_correlationid' = @text
   OR position(@bytes::bytea IN o.raw_headers) > 0
ORDER BY o.position
LIMIT @row_limit
