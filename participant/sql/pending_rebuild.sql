-- Returns the partitions whose owner must take its lease again: their part of a rebuild can begin, or must be undone. The conditions are the ones of
-- begin_rebuild.sql and undo_rebuild.sql.
SELECT p.topic, p.partition
FROM troupe.rebuilds AS r
JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id
WHERE r.consumer_group = @group AND (r.finished_at IS NULL OR r.cancelled_at IS NOT NULL)
  AND CASE
    WHEN r.cancelled_at IS NOT NULL THEN p.until IS NOT NULL AND p.undone_at IS NULL
    ELSE p.until IS NULL
      AND NOT EXISTS (
        SELECT FROM troupe.held AS h WHERE h.consumer_group = @group AND h.topic = p.topic AND h.partition = p.partition)
      AND (SELECT troupe.unsettled_letters(@group)) = 0
  END
