DELETE FROM troupe.inbox
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.inbox
  WHERE consumer_group = @group
    AND handled_at < now() - make_interval(secs => @retention::float8)
  ORDER BY handled_at
  LIMIT @limit
  FOR UPDATE SKIP LOCKED))
