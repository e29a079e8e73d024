-- Begins the partition's part of a rebuild, if it may begin: sets the watermark back, and moves the offsets above it that have ended
-- to the rebuild. Messages up to until that were not handled before are handled by the rebuild, so that the order of their keys is kept.
-- A dead letter with another topic_id failed on a retry topic, or is of a topic that was created again: where its message is is not known.
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
  FROM troupe.rebuilds AS r, troupe.leases AS l
  WHERE r.id = p.rebuild AND r.id = @rebuild AND r.consumer_group = @group AND r.finished_at IS NULL AND r.cancelled_at IS NULL
    AND p.topic = @topic AND p.partition = @partition AND p.until IS NULL AND l.id = @lease
    AND NOT EXISTS (
      SELECT FROM troupe.held AS h WHERE h.consumer_group = @group AND h.topic = p.topic AND h.partition = p.partition)
    AND NOT EXISTS (
      SELECT
      FROM troupe.dead_letters AS d
      WHERE (d.status = 'open' OR d.status = 'redriven' AND troupe.redrive_under_way(d.id, d.consumer_group, d.message_id, d.redrives))
        AND d.consumer_group = @group AND troupe.rebuilt_by(d.consumer_group, d.handler, d.message_type) && p.handlers
        AND d.topic = p.topic
        AND (d.topic_id <> p.topic_id OR d.partition = p.partition AND d."offset" >= p.from_offset))
  RETURNING p.topic_id, p.from_offset, p.until
), forgotten AS (
  DELETE FROM troupe.inbox_offsets AS o USING begun AS b WHERE o.lease_id = @lease AND b.from_offset < b.until
)
UPDATE troupe.leases AS l
SET watermark = least(l.watermark, b.from_offset - 1), watermark_epoch = -1
FROM begun AS b
WHERE l.id = @lease AND b.from_offset < b.until
RETURNING l.id
