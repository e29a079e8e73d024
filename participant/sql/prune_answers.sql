DELETE FROM troupe.answers
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.answers
  WHERE consumer_group = @group
    AND command_key IS NULL
    AND answered_at < now() - make_interval(secs => @retention::float8)
  ORDER BY answered_at
  LIMIT @limit
  FOR UPDATE SKIP LOCKED))
