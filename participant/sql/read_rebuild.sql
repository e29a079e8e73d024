-- Returns the partition's part of the rebuild.
SELECT r.generation, p.handlers, p.topic_id, p.from_offset, p.until, p.watermark, p.epoch, p.ended_low, p.ended_high, p.ended_epoch
FROM troupe.rebuilds AS r
JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id AND p.topic = @topic AND p.partition = @partition AND p.until IS NOT NULL
WHERE r.consumer_group = @group AND r.finished_at IS NULL AND r.cancelled_at IS NULL
