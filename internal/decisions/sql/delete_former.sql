-- Deletes the associations by which events do not find their saga any more. update_sagas.sql explains the limit.
DELETE FROM troupe.saga_associations AS a
USING (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[], @ids::text[]) AS v (saga, variable, value, saga_id)
  LIMIT @limit::bigint) AS w
WHERE a.saga = w.saga
  AND a.variable = w.variable
  AND a.value = w.value
  AND a.saga_id = w.saga_id
