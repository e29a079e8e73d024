-- Deletes and returns stashed events, expired ones without their fields. prune_stash.sql explains when an event is expired.
WITH taken AS (
  DELETE FROM troupe.saga_stash AS s
  USING unnest(@sagas::text[], @variables::text[], @values::text[]) AS w (saga, variable, value)
  WHERE s.saga = w.saga
    AND s.variable = w.variable
    AND s.value = w.value
  RETURNING s.*
)
SELECT saga, variable, value, CASE WHEN expired THEN jsonb_build_object('hop', event -> 'hop', 'type', event -> 'type') ELSE event END AS event,
       expires_at, expired
FROM (
  SELECT *, expires_at <= least(clock_timestamp(),
                                (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group)) AS expired
  FROM taken) AS t
ORDER BY position
