-- Finishes the group's rebuild once each partition has handled the rebuild's messages and none of them is held.
UPDATE troupe.rebuilds AS r
SET finished_at = clock_timestamp()
WHERE r.consumer_group = @group AND r.finished_at IS NULL
  AND NOT EXISTS (
    SELECT
    FROM troupe.rebuild_partitions AS p
    LEFT JOIN troupe.leases AS l ON l.consumer_group = @group AND l.topic = p.topic AND l.partition = p.partition AND l.topic_id = p.topic_id
    WHERE p.rebuild = r.id
      AND (p.until IS NULL OR l.watermark + 1 < p.until
        OR EXISTS (
          SELECT
          FROM troupe.held AS h
          WHERE h.consumer_group = @group AND h.topic_id = p.topic_id AND h.partition = p.partition AND h.redrive = r.generation * 65536)))
RETURNING r.id
