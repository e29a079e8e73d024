-- Returns and locks the events for the next saga of some associations.
SELECT s.saga, s.variable, s.value, s.event, s.saga_id, s.shared, s.position
FROM troupe.saga_stash AS s
JOIN unnest(@sagas::text[], @variables::text[], @values::text[]) AS w (saga, variable, value) USING (saga, variable, value)
WHERE s.saga_id = ''
ORDER BY s.position
FOR UPDATE OF s
