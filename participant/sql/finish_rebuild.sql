-- Finishes the group's rebuild once each partition has handled its messages and none of them is held; a cancelled one once each
-- partition that had begun was undone.
UPDATE troupe.rebuilds AS r
SET finished_at = clock_timestamp()
WHERE r.consumer_group = @group AND r.finished_at IS NULL
  AND NOT EXISTS (
    SELECT
    FROM troupe.rebuild_partitions AS p
    LEFT JOIN troupe.leases AS l ON l.consumer_group = @group AND l.topic = p.topic AND l.partition = p.partition AND l.topic_id = p.topic_id
    WHERE p.rebuild = r.id
      AND CASE
        WHEN r.cancelled_at IS NOT NULL THEN p.until IS NOT NULL AND p.undone_at IS NULL AND l.id IS NOT NULL
        ELSE p.until IS NULL OR l.watermark + 1 < p.until
          OR EXISTS (
            SELECT
            FROM troupe.held AS h
            WHERE h.consumer_group = @group AND h.topic_id = p.topic_id AND h.partition = p.partition AND h.redrive = r.generation * 65536)
      END)
RETURNING r.id, r.cancelled_at IS NOT NULL
