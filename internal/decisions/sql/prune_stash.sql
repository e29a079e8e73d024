-- Deletes and returns expired events of the given types of saga. The events of other types must stay: their coordinator may be stopped.
--
-- An event is overdue if its time is before now, and before the minute after the coordinator of this group last recorded that it runs. So no
-- event is overdue while the coordinator does not run. An overdue event is expired, unless a running saga has its value: this saga may await
-- the event later. prune_stash looks at such an event again after an hour.
WITH overdue AS (
  SELECT s.*
  FROM (SELECT DISTINCT saga FROM unnest(@sagas::text[]) AS t (saga)) AS types,
  LATERAL (
    SELECT ctid AS row, EXISTS (
             SELECT
             FROM troupe.saga_associations AS a
             WHERE a.saga = s.saga AND a.variable = s.variable AND a.value = s.value) AS wanted
    FROM troupe.saga_stash AS s
    WHERE saga = types.saga
      AND expires_at <= least(clock_timestamp(),
                              (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
    ORDER BY expires_at
    LIMIT @limit
    FOR UPDATE SKIP LOCKED) AS s
), stay AS (
  UPDATE troupe.saga_stash AS s
  SET expires_at = clock_timestamp() + interval '1 hour'
  FROM (SELECT row FROM overdue WHERE wanted LIMIT @limit) AS o -- update_sagas.sql explains the limit
  WHERE s.ctid = o.row
)
DELETE FROM troupe.saga_stash AS s
USING (SELECT row FROM overdue WHERE NOT wanted LIMIT @limit) AS o
WHERE s.ctid = o.row
RETURNING s.saga, s.variable, s.value, jsonb_build_object('hop', s.event -> 'hop', 'type', s.event -> 'type') AS event
