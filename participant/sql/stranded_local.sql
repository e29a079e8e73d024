-- Counts the keys of local work whose first entry is overdue: a participant with Local would have claimed it. An entry in progress counts if its
-- member has ended: then no session holds the advisory lock on the member's number (locked_by).
SELECT topic, -1, count(*)
FROM troupe.local_work AS w
WHERE consumer_group = @group
  AND ended_at IS NULL
  AND coalesce(locked_at, next_try, created_at) < clock_timestamp() - interval '5 minutes'
  AND (status = 'pending' OR NOT EXISTS (
    SELECT
    FROM pg_locks AS l
    WHERE l.locktype = 'advisory'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = @member_class::integer::oid
      AND l.objid = w.locked_by::oid
      AND l.objsubid = 2))
  AND NOT EXISTS (
    SELECT
    FROM troupe.local_work AS e
    WHERE e.consumer_group = @group AND e.hold_key = w.hold_key AND e.position < w.position AND e.ended_at IS NULL)
GROUP BY topic
ORDER BY topic
