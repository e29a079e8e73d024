-- Returns the sagas that associations find, and first a row without a saga for each association that has events for the next saga.
-- update_sagas.sql explains the limit, and find_stash.sql the subquery of saga_id.
WITH w AS MATERIALIZED (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint)
SELECT w.saga, w.variable, w.value, '' AS saga_id
FROM w
WHERE EXISTS (
  SELECT
  FROM troupe.saga_stash AS s
  WHERE s.saga = w.saga AND s.variable = w.variable AND s.value = w.value AND s.saga_id = (SELECT '')
  OFFSET 0)
UNION ALL
SELECT a.saga, a.variable, a.value, a.saga_id
FROM w
JOIN troupe.saga_associations AS a USING (saga, variable, value)
ORDER BY saga_id
