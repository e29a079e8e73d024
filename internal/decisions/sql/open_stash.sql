-- Makes the events that were kept for a saga events for the next saga of their value, for a time. An event that is there already is deleted.
WITH doubled AS (
  DELETE FROM troupe.saga_stash AS s
  USING troupe.saga_stash AS o
  WHERE s.saga_id = @id
    AND s.saga_id <> ''
    AND o.saga_id = ''
    AND o.saga = s.saga
    AND o.variable = s.variable
    AND o.value = s.value
    AND o.message_id = s.message_id
  RETURNING s.position
)
UPDATE troupe.saga_stash
SET saga_id = '', expires_at = clock_timestamp() + make_interval(secs => @seconds::float8)
WHERE saga_id = @id
  AND saga_id <> ''
  AND position <> ALL (ARRAY(SELECT position FROM doubled))
