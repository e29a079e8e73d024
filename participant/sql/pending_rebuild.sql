-- The partitions whose owner must take its lease again: their part of a rebuild can begin, or must be undone. The conditions are the
-- ones of begin_rebuild.sql and undo_rebuild.sql.
SELECT p.topic, p.partition
FROM troupe.rebuilds AS r
JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id
WHERE r.consumer_group = @group AND (r.finished_at IS NULL OR r.cancelled_at IS NOT NULL)
  AND CASE
    WHEN r.cancelled_at IS NOT NULL THEN p.until IS NOT NULL AND p.undone_at IS NULL
    ELSE p.until IS NULL
      AND NOT EXISTS (
        SELECT FROM troupe.held AS h WHERE h.consumer_group = @group AND h.topic = p.topic AND h.partition = p.partition)
      AND NOT EXISTS (
        SELECT
        FROM troupe.dead_letters AS d
        WHERE (d.status = 'open' OR d.status = 'redriven' AND troupe.redrive_under_way(d.id, d.consumer_group, d.message_id, d.redrives))
        AND d.consumer_group = @group AND troupe.rebuilt_by(d.consumer_group, d.handler, d.message_type) && p.handlers
          AND d.topic = p.topic
          AND (d.topic_id <> p.topic_id OR d.partition = p.partition AND d."offset" >= p.from_offset))
  END
