-- Returns and locks the events for the next saga of some associations. update_sagas.sql explains the limit. The subquery of saga_id keeps the
-- planner from an index of all such events, which looks cheaper while the table is small.
SELECT s.saga, s.variable, s.value, s.event, s.saga_id, s.shared, s.position
FROM (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w
JOIN troupe.saga_stash AS s USING (saga, variable, value)
WHERE s.saga_id = (SELECT '')
ORDER BY s.position
FOR UPDATE OF s
