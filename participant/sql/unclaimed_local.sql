-- The local topics of the group (@own) or of other groups, with the number of keys that could have been claimed for a minute, of
-- groups that have nothing in progress.
SELECT t.topic, t.consumer_group, count(w.position)
FROM troupe.local_topics AS t
LEFT JOIN troupe.local_work AS w
  ON w.consumer_group = t.consumer_group
 AND w.topic = t.topic
 AND w.status = 'pending'
 AND w.created_at < clock_timestamp() - interval '1 minute'
 AND (w.next_try IS NULL OR w.next_try < clock_timestamp() - interval '1 minute')
 AND NOT EXISTS (
    SELECT FROM troupe.local_work AS e
    WHERE e.consumer_group = w.consumer_group AND e.hold_key = w.hold_key AND e.position < w.position AND e.ended_at IS NULL)
 AND NOT EXISTS (
    SELECT FROM troupe.local_work AS e
    WHERE e.consumer_group = w.consumer_group AND e.ended_at IS NULL AND e.status = 'in progress')
WHERE t.topic = ANY (@topics::text[]) AND (t.consumer_group = @group) = @own::boolean
GROUP BY t.topic, t.consumer_group
ORDER BY t.topic, t.consumer_group
