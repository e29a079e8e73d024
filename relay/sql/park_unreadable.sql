-- Parks, if the term is still ours, the rows of the shard above @low that a claim would read and whose text cannot be converted to UTF-8.
-- The claim fails at these rows. The topic is recorded in ASCII. See claim_rows.sql.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), unreadable AS MATERIALIZED (
  SELECT o.position, o.id, o.topic, troupe.outbox_order_key(o.key, o.key_bytes) AS order_key, coalesce(t.attempts, 0) + 1 AS attempts,
         troupe.outbox_unreadable(o.topic, o.key, o.type, o.headers) AS reason
  FROM troupe.outbox o
  LEFT JOIN troupe.outbox_failures t ON t.position = o.position AND t.id = o.id
  WHERE o.position > @low
    AND EXISTS (SELECT FROM lease)
    AND (@shards::int = 1 OR troupe.outbox_shard(o.key, o.key_bytes, o.id, @shards) = @shard)
    AND (@published::pg_snapshot IS NULL OR t.position IS NOT NULL
         OR NOT ((pg_visible_in_snapshot(o.xid, @published)
           OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @published))
           AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @published)))
    AND (@sweep::pg_snapshot IS NULL OR pg_visible_in_snapshot(o.xid, @sweep) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @sweep))
    AND (t.position IS NULL OR t.status <> 'parked')
)
INSERT INTO troupe.outbox_failures AS t (position, id, topic, order_key, status, attempts, max_attempts, last_error)
SELECT position, id, regexp_replace(topic, '[^ -~]', '?', 'g'), order_key, 'parked', attempts, 1, left(reason, 1000)
FROM unreadable
WHERE reason IS NOT NULL
ON CONFLICT (position) DO UPDATE
SET id              = excluded.id,
    topic           = excluded.topic,
    order_key       = excluded.order_key,
    status          = excluded.status,
    attempts        = excluded.attempts,
    max_attempts    = excluded.max_attempts,
    next_try        = NULL,
    last_error      = excluded.last_error,
    first_failed_at = CASE WHEN excluded.attempts <= 1 THEN clock_timestamp() ELSE t.first_failed_at END
RETURNING t.position, t.id, t.topic, t.attempts, t.last_error
