-- Deletes the copies of an event that a saga has used: the ones that are kept for it, and the ones for the next saga of its associations.
-- update_sagas.sql explains the limit.
WITH kept AS (
  DELETE FROM troupe.saga_stash WHERE saga_id = @id AND saga_id <> '' AND message_id = @message
)
DELETE FROM troupe.saga_stash AS s
USING (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w
WHERE s.saga = w.saga
  AND s.variable = w.variable
  AND s.value = w.value
  AND s.saga_id = ''
  AND s.message_id = @message
