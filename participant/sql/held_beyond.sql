-- Partitions that their topics do not have, with how many messages of them the group holds.
SELECT h.topic, h.partition, count(*)
FROM troupe.held AS h
JOIN unnest(@topics::text[], @partitions::integer[]) AS t (topic, partitions) ON t.topic = h.topic AND h.partition >= t.partitions
WHERE h.consumer_group = @group
GROUP BY h.topic, h.partition
ORDER BY h.topic, h.partition
