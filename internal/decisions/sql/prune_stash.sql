-- Deletes expired events of the given types only: the coordinator of another type may be down, so that its events are kept longer. The
-- time is at most a minute later than the coordinator of the group was last seen, so that nothing expires while it does not run.
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
