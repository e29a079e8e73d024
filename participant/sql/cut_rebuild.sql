-- Lets no offset from @from on count as one that had ended when the partition's part of a rebuild began: the broker has lost the end of the log.
UPDATE troupe.rebuild_partitions AS p
SET watermark = least(p.watermark, @from - 1),
    until = @from,
    (ended_low, ended_high, ended_epoch) = (
      SELECT coalesce(array_agg(e.low ORDER BY e.n), '{}'), coalesce(array_agg(least(e.high, @from - 1) ORDER BY e.n), '{}'),
             coalesce(array_agg(e.epoch ORDER BY e.n), '{}')
      FROM unnest(p.ended_low, p.ended_high, p.ended_epoch) WITH ORDINALITY AS e (low, high, epoch, n)
      WHERE e.low < @from)
FROM troupe.rebuilds AS r
WHERE r.id = p.rebuild AND r.consumer_group = @group AND (r.finished_at IS NULL OR r.cancelled_at IS NOT NULL)
  AND p.topic = @topic AND p.partition = @partition AND p.topic_id = @topic_id AND p.until > @from AND p.undone_at IS NULL
