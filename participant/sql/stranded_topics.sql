-- Held messages of partitions in which a try is overdue: a member that consumes the topic would have made it.
SELECT topic, partition, count(*)
FROM troupe.held
WHERE consumer_group = @group
GROUP BY topic, partition
HAVING min(next_try) < clock_timestamp() - interval '5 minutes'
ORDER BY topic, partition
