-- The rebuild that the partition takes part in, and the generations of the group's rebuilds that may emit.
SELECT r.generation, p.handlers, p.topic_id, p.from_offset, p.until, p.watermark, p.epoch, p.ended_low, p.ended_high, p.ended_epoch,
       (SELECT coalesce(array_agg(e.generation), '{}') FROM troupe.rebuilds AS e WHERE e.consumer_group = @group AND e.emit) AS emitting
FROM (SELECT) AS one
LEFT JOIN (
  troupe.rebuilds AS r
  JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id AND p.topic = @topic AND p.partition = @partition AND p.until IS NOT NULL)
ON r.consumer_group = @group AND r.finished_at IS NULL AND r.cancelled_at IS NULL
