-- Returns the events that take_stash.sql would delete and return now.
SELECT s.saga, s.variable, s.value, s.event, s.expires_at
FROM troupe.saga_stash AS s
JOIN unnest(@sagas::text[], @variables::text[], @values::text[]) AS w (saga, variable, value) USING (saga, variable, value)
WHERE s.expires_at > least(clock_timestamp(),
                           (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
ORDER BY s.position
