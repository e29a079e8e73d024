DELETE FROM troupe.local_work
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.local_work
  WHERE consumer_group = @group
    AND ended_at < clock_timestamp() - make_interval(secs => @keep::float8)
  ORDER BY ended_at
  LIMIT @limit
  FOR UPDATE SKIP LOCKED))
