-- Counts, for each other group, the keys whose local work of the topic has waited unclaimed for five minutes. A group is left out while a running
-- member of it has an entry in progress. A running member holds the advisory lock on its number (locked_by).
WITH running AS MATERIALIZED (
  SELECT l.objid
  FROM pg_locks AS l
  WHERE l.locktype = 'advisory'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = @member_class::integer::oid
    AND l.objsubid = 2
)
SELECT w.consumer_group, count(*)
FROM troupe.local_topics AS t
JOIN troupe.local_work AS w ON w.consumer_group = t.consumer_group AND w.topic = t.topic
WHERE t.topic = @topic
  AND t.consumer_group <> @group
  AND w.ended_at IS NULL
  AND coalesce(w.locked_at, w.next_try, w.created_at) < clock_timestamp() - interval '5 minutes'
  AND NOT EXISTS (
    SELECT FROM troupe.local_work AS e
    WHERE e.consumer_group = w.consumer_group AND e.hold_key = w.hold_key AND e.position < w.position AND e.ended_at IS NULL)
  AND NOT EXISTS (
    SELECT FROM troupe.local_work AS e
    WHERE e.consumer_group = w.consumer_group AND e.ended_at IS NULL AND e.status = 'in progress'
      AND e.locked_by::oid IN (SELECT objid FROM running))
GROUP BY w.consumer_group
