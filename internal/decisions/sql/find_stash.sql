-- Returns and locks the events of some types for the next saga of some associations. update_sagas.sql explains the limit of the associations. The
-- subquery of saga_id keeps the planner from an index of all such events, which looks cheaper while the table is small. Only of a message whose
-- identity is stored as a hash, the event itself is read to find its type.
SELECT s.saga, s.variable, s.value, s.event, s.saga_id, s.shared, s.position
FROM (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[], @prefixes::text[]) AS v (saga, variable, value, prefix)
  LIMIT @limit::bigint) AS w
JOIN troupe.saga_stash AS s USING (saga, variable, value)
WHERE s.saga_id = (SELECT '')
  AND s.position > @after
  AND CASE WHEN s.message_id LIKE 'sha256:%' THEN concat(s.event ->> 'hop', '/', s.event ->> 'type', '/') = w.prefix
           ELSE starts_with(s.message_id, w.prefix) END
ORDER BY s.position
LIMIT @most::bigint
FOR UPDATE OF s
