WITH taken AS (
  DELETE FROM troupe.saga_stash AS s
  USING unnest(@sagas::text[], @variables::text[], @values::text[]) AS w (saga, variable, value)
  WHERE s.saga = w.saga
    AND s.variable = w.variable
    AND s.value = w.value
  RETURNING s.*
)
SELECT saga, variable, value, event, expires_at
FROM taken
WHERE expires_at > clock_timestamp()
ORDER BY position
