-- Begins the partition's part of a rebuild, if it may begin: sets the watermark back, and moves the ended offsets above the watermark to the rebuild.
-- Messages up to until that have not ended are handled as usual, in the order of their keys.
WITH begun AS (
  UPDATE troupe.rebuild_partitions AS p
  SET began_at = clock_timestamp(),
      watermark = CASE WHEN l.topic_id = p.topic_id THEN l.watermark ELSE -1 END,
      epoch = CASE WHEN l.topic_id = p.topic_id THEN l.watermark_epoch ELSE -1 END,
      until = CASE WHEN l.topic_id = p.topic_id THEN
        1 + greatest(l.watermark, (SELECT max(o.high) FROM troupe.inbox_offsets AS o WHERE o.lease_id = l.id AND o.topic_id = l.topic_id))
      ELSE 0 END,
      (ended_low, ended_high, ended_epoch) = (
        SELECT coalesce(array_agg(e.low ORDER BY e.low, e.high, o.epoch), '{}'), coalesce(array_agg(e.high ORDER BY e.low, e.high, o.epoch), '{}'),
               coalesce(array_agg(o.epoch ORDER BY e.low, e.high, o.epoch), '{}')
        FROM troupe.inbox_offsets AS o,
        LATERAL (SELECT o.low, o.high WHERE o.offsets IS NULL UNION ALL SELECT n, n FROM unnest(o.offsets) AS n) AS e (low, high)
        WHERE o.lease_id = l.id AND o.topic_id = p.topic_id AND e.high > l.watermark)
  FROM troupe.leases AS l
  WHERE p.rebuild = @rebuild AND p.topic = @topic AND p.partition = @partition AND p.until IS NULL AND l.id = @lease
    AND NOT EXISTS (
      SELECT FROM troupe.held AS h WHERE h.consumer_group = @group AND h.topic = p.topic AND h.partition = p.partition)
    AND (SELECT troupe.unsettled_letters(@group)) = 0
  RETURNING p.topic_id, p.from_offset, p.until
), forgotten AS (
  DELETE FROM troupe.inbox_offsets AS o USING begun AS b WHERE o.lease_id = @lease AND b.from_offset < b.until
)
UPDATE troupe.leases AS l
SET watermark = least(l.watermark, b.from_offset - 1)
FROM begun AS b
WHERE l.id = @lease AND b.from_offset < b.until
RETURNING l.id
