-- Deletes and returns expired events of the given types of saga. The events of other types must stay: their coordinator may be stopped.
--
-- An event is expired if its time is before now, and before the minute after the coordinator of this group last recorded that it runs.
-- So no event expires while the coordinator does not run.
DELETE FROM troupe.saga_stash
WHERE ctid = ANY (ARRAY(
  SELECT s.ctid
  FROM (SELECT DISTINCT saga FROM unnest(@sagas::text[]) AS t (saga)) AS types,
  LATERAL (
    SELECT ctid
    FROM troupe.saga_stash
    WHERE saga = types.saga
      AND expires_at <= least(clock_timestamp(),
                              (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
    ORDER BY expires_at
    LIMIT @limit
    FOR UPDATE SKIP LOCKED) AS s))
RETURNING saga, variable, value, jsonb_build_object('hop', event -> 'hop', 'type', event -> 'type') AS event, expires_at
