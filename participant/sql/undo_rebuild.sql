-- Undoes the partition's part of a rebuild that was cancelled: sets the watermark forward to its value before the rebuild, restores the offsets above
-- it that had ended, and deletes the held messages of the rebuild, which had been handled before. Returns one row if it has set the watermark.
WITH undone AS (
  UPDATE troupe.rebuild_partitions AS p
  SET undone_at = clock_timestamp()
  FROM troupe.rebuilds AS r
  WHERE r.id = p.rebuild AND r.consumer_group = @group AND r.cancelled_at IS NOT NULL
    AND p.topic = @topic AND p.partition = @partition AND p.until IS NOT NULL AND p.undone_at IS NULL
  RETURNING p.topic_id, p.watermark, p.epoch, r.generation, p.ended_low, p.ended_high, p.ended_epoch
), dropped AS (
  DELETE FROM troupe.held AS h
  USING undone AS u
  WHERE h.consumer_group = @group AND h.topic_id = u.topic_id AND h.partition = @partition AND h.redrive = u.generation * 65536
), restored AS (
  INSERT INTO troupe.inbox_offsets (lease_id, topic_id, low, high, epoch)
  SELECT l.id, u.topic_id, e.low, e.high, e.epoch
  FROM undone AS u
  JOIN troupe.leases AS l ON l.id = @lease AND l.topic_id = u.topic_id,
  unnest(u.ended_low, u.ended_high, u.ended_epoch) AS e (low, high, epoch)
  WHERE e.high > l.watermark
)
UPDATE troupe.leases AS l
SET watermark = u.watermark, watermark_epoch = u.epoch
FROM undone AS u
WHERE l.id = @lease AND l.topic_id = u.topic_id AND l.watermark <= u.watermark
RETURNING l.id
