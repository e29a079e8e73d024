-- Keeps the events of a key for its saga, so that they do not expire.
UPDATE troupe.saga_stash AS s
SET saga_id = @id, expires_at = NULL
FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS w (saga, variable, value)
WHERE s.saga = w.saga
  AND s.variable = w.variable
  AND s.value = w.value
  AND s.variable = ''
  AND s.saga_id = ''
