-- Deletes and returns the expired events of associations, without their fields. prune_stash.sql explains when an event is expired, find_stash.sql
-- the subquery of saga_id, and update_sagas.sql the limit.
DELETE FROM troupe.saga_stash AS s
USING (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w
WHERE s.saga = w.saga
  AND s.variable = w.variable
  AND s.value = w.value
  AND s.saga_id = (SELECT '')
  AND s.expires_at <= least(clock_timestamp(),
                            (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
  AND NOT EXISTS (
    SELECT
    FROM troupe.saga_associations AS a
    WHERE a.saga = s.saga AND a.variable = s.variable AND a.value = s.value
    OFFSET 0)
RETURNING s.saga, s.variable, s.value, jsonb_build_object('hop', s.event -> 'hop', 'type', s.event -> 'type') AS event
