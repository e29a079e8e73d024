-- Keeps the events of a key for its saga, so that they do not expire. find_stash.sql explains the subquery of saga_id, update_sagas.sql the limit.
UPDATE troupe.saga_stash AS s
SET saga_id = @id, expires_at = NULL
FROM (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w
WHERE s.saga = w.saga
  AND s.variable = w.variable
  AND s.value = w.value
  AND s.variable = ''
  AND s.saga_id = (SELECT '')
