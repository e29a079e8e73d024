-- Local work that is overdue, of keys in which no earlier entry waits: a participant with Local would have claimed it.
SELECT topic, -1, count(*)
FROM troupe.local_work AS w
WHERE consumer_group = @group
  AND ended_at IS NULL
  AND status = 'pending'
  AND coalesce(next_try, created_at) < clock_timestamp() - interval '5 minutes'
  AND NOT EXISTS (
    SELECT
    FROM troupe.local_work AS e
    WHERE e.consumer_group = @group AND e.hold_key = w.hold_key AND e.position < w.position AND e.ended_at IS NULL)
GROUP BY topic
ORDER BY topic
