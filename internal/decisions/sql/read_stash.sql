-- Returns the events for the next saga of some associations that find_stash.sql would return after expire_stash.sql.
SELECT s.saga, s.variable, s.value, s.event, s.saga_id, s.shared, s.position
FROM (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w
JOIN troupe.saga_stash AS s USING (saga, variable, value)
WHERE s.saga_id = (SELECT '')
  AND (s.expires_at > least(clock_timestamp(),
                            (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
       OR EXISTS (
         SELECT
         FROM troupe.saga_associations AS a
         WHERE a.saga = s.saga AND a.variable = s.variable AND a.value = s.value
         OFFSET 0))
