-- update_sagas.sql explains the limit.
SELECT a.saga, a.variable, a.value, a.saga_id
FROM (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w
JOIN troupe.saga_associations AS a USING (saga, variable, value)
ORDER BY a.saga_id
