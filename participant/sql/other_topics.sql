-- Returns the group's local topics except @topics, and whether each has a consumer: a session has the lock on the topic, or the topic became local
-- within @wait seconds, so that its first consumer may be about to start.
SELECT t.topic,
       t.created_at > clock_timestamp() - make_interval(secs => @wait::float8)
         OR EXISTS (
           SELECT
           FROM pg_locks AS l
           WHERE l.locktype = 'advisory'
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND l.classid = @class::integer::oid
             AND l.objid = hashtext(t.consumer_group || ' ' || t.topic)::oid
             AND l.objsubid = 2)
FROM troupe.local_topics AS t
WHERE t.consumer_group = @group
  AND t.topic <> ALL (@topics::text[])
ORDER BY t.topic
