-- Returns and locks the events that a saga may use: the ones that are kept for it, or for the next saga of their value. update_sagas.sql
-- explains the limit.
SELECT s.saga, s.variable, s.value, s.event, s.saga_id, s.shared
FROM troupe.saga_stash AS s
JOIN (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w USING (saga, variable, value)
WHERE s.saga_id IN ('', @id)
ORDER BY s.position
FOR UPDATE OF s
