-- Counts the held messages of topics that the group does not consume, and of partitions that their topics do not have.
SELECT topic, partition, count(*)
FROM troupe.held AS h
WHERE consumer_group = @group
  AND (topic <> ALL (@consumed::text[])
    OR EXISTS (
      SELECT
      FROM unnest(@topics::text[], @partitions::integer[]) AS t (topic, partitions)
      WHERE t.topic = h.topic AND h.partition >= t.partitions))
GROUP BY topic, partition
ORDER BY topic, partition
