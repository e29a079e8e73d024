-- Rows that a stream will not tell and that stand behind others in trouble, if the term still is ours.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
)
INSERT INTO troupe.outbox_trouble (position, id, topic, order_key, status, attempts, max_attempts, last_error)
SELECT o.position, o.id, o.topic, coalesce(o.key_bytes, convert_to(o.key, 'UTF8')), 'waiting', 0, 0, ''
FROM troupe.outbox o
WHERE EXISTS (SELECT FROM lease)
  AND pg_visible_in_snapshot(o.xid, @sweep::pg_snapshot)
  AND (@published::pg_snapshot IS NULL OR NOT pg_visible_in_snapshot(o.xid, @published))
ON CONFLICT (position) DO NOTHING
