-- Fires due deadlines in one statement: a process that dies has fired all of them or none. Only one member of a group fires at a time, or a deadline
-- could overtake an earlier one of its key. A row that is locked is being cancelled or replaced, and is left out. Names without a handler in the
-- caller wait for a member that has one.
--
-- Only the server that answered next_deadline.sql fires, and only deadlines that were due at the time of that answer: the database may be away
-- between the two statements, and the deadlines of that time may have to wait for messages. If a rebuild of one of @topics has begun that the caller
-- does not know of yet, only names in @at_once are fired.
WITH due AS (
  SELECT consumer_group, scope, name
  FROM troupe.deadlines
  WHERE (SELECT pg_try_advisory_xact_lock(@class, hashtext(@group)))
    AND consumer_group = @group
    AND fired_at IS NULL
    AND name = ANY (@names::text[])
    AND (name = ANY (@at_once::text[])
      OR NOT EXISTS ( -- as behind_rebuild.sql
        SELECT
        FROM troupe.rebuilds AS r
        JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id
        JOIN troupe.leases AS l ON l.consumer_group = r.consumer_group AND l.topic = p.topic AND l.partition = p.partition AND l.topic_id = p.topic_id
        WHERE r.consumer_group = @group AND r.finished_at IS NULL AND p.topic = ANY (@topics::text[]) AND l.watermark + 1 < p.until))
    AND due_at BETWEEN coalesce(now() - make_interval(secs => @back::float8), '-infinity') AND least(now(), @asked::timestamptz)
    AND pg_postmaster_start_time() = coalesce(@server::timestamptz, pg_postmaster_start_time())
  ORDER BY due_at
  LIMIT @limit
  FOR UPDATE SKIP LOCKED
), fired AS (
  UPDATE troupe.deadlines AS d
  SET fired_at = clock_timestamp()
  FROM due
  WHERE d.consumer_group = due.consumer_group
    AND d.scope = due.scope
    AND d.name = due.name
  RETURNING d.*
), written AS (
  INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload)
  SELECT id, @topic, key, key_bytes, type, headers, raw_headers, payload
  FROM fired
  ORDER BY due_at, scheduled_at
)
SELECT count(*), extract(epoch FROM max(fired_at - due_at))::float8, pg_notify(@channel, '')::text
FROM fired
HAVING count(*) > 0
