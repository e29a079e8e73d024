-- The number of keys of each other group whose local work of the topic waits unclaimed for five minutes. Groups with an entry in progress
-- are left out.
SELECT w.consumer_group, count(*)
FROM troupe.local_topics AS t
JOIN troupe.local_work AS w ON w.consumer_group = t.consumer_group AND w.topic = t.topic
WHERE t.topic = @topic
  AND t.consumer_group <> @group
  AND w.ended_at IS NULL
  AND w.status = 'pending'
  AND coalesce(w.next_try, w.created_at) < clock_timestamp() - interval '5 minutes'
  AND NOT EXISTS (
    SELECT FROM troupe.local_work AS e
    WHERE e.consumer_group = w.consumer_group AND e.hold_key = w.hold_key AND e.position < w.position AND e.ended_at IS NULL)
  AND NOT EXISTS (
    SELECT FROM troupe.local_work AS e
    WHERE e.consumer_group = w.consumer_group AND e.ended_at IS NULL AND e.status = 'in progress')
GROUP BY w.consumer_group
