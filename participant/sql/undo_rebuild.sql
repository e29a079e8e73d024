-- Sets the watermark forward to where it was before a rebuild that was cancelled, and removes the held messages of the rebuild that had
-- been handled before. It returns one row if there was anything to undo.
WITH undone AS (
  UPDATE troupe.rebuild_partitions AS p
  SET undone_at = clock_timestamp()
  FROM troupe.rebuilds AS r
  WHERE r.id = p.rebuild AND r.consumer_group = @group AND r.finished_at IS NULL AND r.cancelled_at IS NOT NULL
    AND p.topic = @topic AND p.partition = @partition AND p.until IS NOT NULL AND p.undone_at IS NULL
  RETURNING p.topic_id, p.watermark, p.epoch, r.generation
), dropped AS (
  DELETE FROM troupe.held AS h
  USING undone AS u
  WHERE h.consumer_group = @group AND h.topic_id = u.topic_id AND h.partition = @partition AND h."offset" <= u.watermark
    AND h.redrive = u.generation * 65536
)
UPDATE troupe.leases AS l
SET watermark = u.watermark, watermark_epoch = u.epoch
FROM undone AS u
WHERE l.id = @lease AND l.topic_id = u.topic_id AND l.watermark < u.watermark
RETURNING l.id
