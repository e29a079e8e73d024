DELETE FROM troupe.inbox
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.inbox
  WHERE consumer_group = @group
    AND handled_at < now() - make_interval(secs => @retention::float8)
    AND redrive >> 16 IS DISTINCT FROM ( -- a rebuild recognises redriven messages in its range by their originals
      SELECT generation FROM troupe.rebuilds WHERE consumer_group = @group AND finished_at IS NULL)
  ORDER BY handled_at
  LIMIT @limit
  FOR UPDATE SKIP LOCKED))
