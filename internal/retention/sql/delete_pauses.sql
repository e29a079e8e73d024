-- Deletes a batch of the log of pauses, in its order. The pause that applies now stays.
WITH due AS (
  SELECT position, at, shard
  FROM troupe.relay_pauses
  WHERE position > @after
  ORDER BY position
  LIMIT @limit
), removed AS (
  DELETE FROM troupe.relay_pauses AS p
  USING due AS d
  WHERE p.position = d.position
    AND d.at < @before
    AND NOT EXISTS (
      SELECT
      FROM troupe.relay_leases AS l
      WHERE l.shard = d.shard AND l.paused_at IS NOT NULL AND d.at >= l.paused_at - interval '1 minute')
  RETURNING p.position
)
SELECT count(*), (SELECT count(*) FROM removed), coalesce(max(position), 0), coalesce(bool_and(at < @before), false)
FROM due
