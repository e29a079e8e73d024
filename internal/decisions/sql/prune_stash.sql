DELETE FROM troupe.saga_stash
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.saga_stash
  WHERE expires_at <= clock_timestamp()
  ORDER BY expires_at
  LIMIT @limit
  FOR UPDATE SKIP LOCKED))
