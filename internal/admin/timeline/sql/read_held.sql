SELECT h.consumer_group, h.topic, h.partition, h."offset", h.key, h.headers,
       CASE WHEN octet_length(h.payload) <= @payload_limit THEN h.payload END,
       coalesce(octet_length(h.payload), 0),
       h.message_time, h.created_at, h.last_failed_at, h.attempts,
       coalesce(a.max_attempts, h.max_attempts),
       coalesce(extract(epoch FROM coalesce(a.next_try, h.next_try) - clock_timestamp()), 0)::float8,
       coalesce(a.error_class, h.error_class, ''),
       left(coalesce(a.last_error, h.last_error, ''), 2000),
       a."offset", coalesce(a.attempts, 0)
FROM troupe.held h
LEFT JOIN LATERAL (
  SELECT b."offset", b.attempts, b.max_attempts, b.next_try, b.error_class, b.last_error
  FROM troupe.held b
  WHERE b.consumer_group = h.consumer_group
    AND b.topic = h.topic
    AND b.partition = h.partition
    AND b.hold_key = h.hold_key
    AND b.position < h.position
  ORDER BY b.position
  LIMIT 1
) a ON true
WHERE h.key = @bytes
   OR position(@bytes::bytea IN h.headers) > 0
ORDER BY h.position
LIMIT @row_limit
