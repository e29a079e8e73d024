-- Reports whether a rebuild has begun in the partition, also one that has ended.
SELECT EXISTS (
  SELECT
  FROM troupe.rebuild_partitions AS p
  JOIN troupe.rebuilds AS r ON r.id = p.rebuild
  WHERE r.consumer_group = @group AND p.topic = @topic AND p.partition = @partition AND p.until IS NOT NULL)
