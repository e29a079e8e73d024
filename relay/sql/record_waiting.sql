-- Records the rows that a sweep has left in the table as waiting, if the term is still ours: a stream will not deliver them, and they wait
-- behind failed rows. A record of another row at the position is replaced, since that row is gone. A topic that cannot be converted to
-- UTF-8 is recorded in ASCII, since the relay and the operator's tools read this table as UTF-8.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
)
INSERT INTO troupe.outbox_failures AS t (position, id, topic, order_key, status, attempts, max_attempts, last_error)
SELECT o.position, o.id,
       CASE
         WHEN getdatabaseencoding() <> 'UTF8' AND troupe.outbox_unreadable(o.topic, NULL, NULL, NULL) IS NOT NULL
         THEN regexp_replace(o.topic, '[^ -~]', '?', 'g')
         ELSE o.topic
       END,
       troupe.outbox_order_key(o.key, o.key_bytes), 'waiting', 0, 0, ''
FROM troupe.outbox o
WHERE EXISTS (SELECT FROM lease)
  AND (pg_visible_in_snapshot(o.xid, @sweep::pg_snapshot) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @sweep::pg_snapshot))
  AND (@published::pg_snapshot IS NULL OR NOT ((pg_visible_in_snapshot(o.xid, @published) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @published)) AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), @published)))
ON CONFLICT (position) DO UPDATE
SET id              = excluded.id,
    topic           = excluded.topic,
    order_key       = excluded.order_key,
    status          = excluded.status,
    attempts        = excluded.attempts,
    max_attempts    = excluded.max_attempts,
    next_try        = excluded.next_try,
    last_error      = excluded.last_error,
    first_failed_at = excluded.first_failed_at
WHERE t.id <> excluded.id
