-- Counts the held messages of each partition in which a try is overdue: a member that consumes the topic would have made it. A partition may have no
-- message with a next try, if the first one of each key has ended and the later ones wait for their turn. For such a partition the time of the
-- lease's release counts instead, which is null if the last owner crashed.
SELECT topic, partition, count(*)
FROM troupe.held
LEFT JOIN troupe.leases USING (consumer_group, topic, partition)
WHERE consumer_group = @group
GROUP BY topic, partition
HAVING coalesce(min(next_try), min(released_at)) < clock_timestamp() - interval '5 minutes'
ORDER BY topic, partition
