-- As park_unreadable.sql, for failed rows that claim_failures.sql would read.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), unreadable AS MATERIALIZED (
  SELECT o.position, o.id, troupe.outbox_unreadable(o.topic, o.key, o.type, o.headers) AS reason
  FROM troupe.outbox_failures t
  JOIN troupe.outbox o ON o.position = t.position AND o.id = t.id
  WHERE t.status <> 'parked'
    AND EXISTS (SELECT FROM lease)
)
UPDATE troupe.outbox_failures t
SET status          = 'parked',
    attempts        = least(t.attempts, 2147483646) + 1,
    max_attempts    = 1,
    next_try        = NULL,
    last_error      = left(u.reason, 1000),
    first_failed_at = CASE WHEN t.attempts = 0 THEN clock_timestamp() ELSE t.first_failed_at END
FROM unreadable u
WHERE u.position = t.position
  AND u.id = t.id
  AND u.reason IS NOT NULL
RETURNING t.position, t.id, t.topic, t.attempts, t.last_error
