-- Returns the events of some types for the next saga of some associations that find_stash.sql would return after expire_stash.sql.
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
  AND (s.expires_at > least(clock_timestamp(),
                            (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
       OR EXISTS (
         SELECT
         FROM troupe.saga_associations AS a
         WHERE a.saga = s.saga AND a.variable = s.variable AND a.value = s.value
         OFFSET 0))
ORDER BY s.position
LIMIT @most::bigint
