-- Moves partitions on from where this watcher found them. Fewer rows than partitions: another one has moved them.
WITH moved AS (
  SELECT * FROM unnest(@topics::integer[], @ids::uuid[], @partitions::integer[], @from::bigint[], @to::bigint[])
    AS m (topic, topic_id, partition, was, next)
), known AS (
  UPDATE troupe.watch_offsets AS o
  SET next = m.next
  FROM moved AS m
  WHERE o.flow = @flow AND o.topic = m.topic AND o.topic_id = m.topic_id AND o.partition = m.partition AND o.next = m.was
  RETURNING o.topic
)
SELECT count(*) FROM known
