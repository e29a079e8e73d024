-- Returns the events that find_stash.sql would return after expire_stash.sql. update_sagas.sql explains the limit.
SELECT s.saga, s.variable, s.value, s.event, s.saga_id, s.shared
FROM troupe.saga_stash AS s
JOIN (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w USING (saga, variable, value)
WHERE s.saga_id = @id
   OR s.saga_id = ''
  AND (s.expires_at > least(clock_timestamp(),
                            (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
       OR EXISTS (SELECT FROM troupe.saga_associations AS a WHERE a.saga = s.saga AND a.variable = s.variable AND a.value = s.value))
ORDER BY s.position
