-- Sums the bytes of unexpired events. prune_stash.sql explains when an event is expired.
SELECT coalesce(sum(s.bytes), 0)
FROM troupe.saga_stash AS s
JOIN unnest(@sagas::text[], @variables::text[], @values::text[]) AS w (saga, variable, value) USING (saga, variable, value)
WHERE s.expires_at > least(clock_timestamp(),
                           (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
