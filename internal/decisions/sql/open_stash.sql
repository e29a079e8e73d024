-- Makes events that a variable finds and that were kept for a saga, all or some messages, events for the next saga of their value, for a time. An
-- event that is there already is deleted.
WITH doubled AS (
  SELECT k.position
  FROM (
    SELECT position, saga, variable, value, '' AS saga_id, message_id
    FROM troupe.saga_stash
    WHERE saga_id = @id
      AND saga_id <> '' -- as the index
      AND NOT shared
      AND variable <> ''
      AND (@messages::text[] IS NULL OR message_id = ANY (@messages::text[]))
    OFFSET 0) AS k
  JOIN troupe.saga_stash AS o USING (saga, variable, value, saga_id, message_id)
), deleted AS (
  DELETE FROM troupe.saga_stash
  WHERE saga_id = @id
    AND saga_id <> ''
    AND position = ANY (ARRAY(SELECT position FROM doubled))
)
UPDATE troupe.saga_stash
SET saga_id = '', expires_at = clock_timestamp() + make_interval(secs => @seconds::float8)
WHERE saga_id = @id
  AND saga_id <> ''
  AND NOT shared
  AND variable <> ''
  AND (@messages::text[] IS NULL OR message_id = ANY (@messages::text[]))
  AND position <> ALL (ARRAY(SELECT position FROM doubled))
