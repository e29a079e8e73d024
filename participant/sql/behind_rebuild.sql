-- Returns whether messages of the topics wait behind messages that a rebuild handles again.
SELECT EXISTS (
  SELECT
  FROM troupe.rebuilds AS r
  JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id
  JOIN troupe.leases AS l ON l.consumer_group = r.consumer_group AND l.topic = p.topic AND l.partition = p.partition AND l.topic_id = p.topic_id
  WHERE r.consumer_group = @group AND r.finished_at IS NULL AND p.topic = ANY (@topics::text[]) AND l.watermark + 1 < p.until)
