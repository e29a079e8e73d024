-- Sums the bytes of the events that a saga may use: see read_stash.sql. update_sagas.sql explains the limit.
SELECT coalesce(sum(s.bytes), 0)
FROM troupe.saga_stash AS s
JOIN (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w USING (saga, variable, value)
WHERE s.saga_id IN ('', @id)
  AND (s.expires_at IS NULL
       OR s.expires_at > least(clock_timestamp(),
                               (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
       OR EXISTS (SELECT FROM troupe.saga_associations AS a WHERE a.saga = s.saga AND a.variable = s.variable AND a.value = s.value))
