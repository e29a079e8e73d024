-- Deletes acknowledged rows and their failure records, if the term is still ours. The row of the lease stays locked until the commit, so no
-- other term begins in between; a plain read would not prevent that. It finds rows by position and by id: after a crash with asynchronous
-- commits a sequence can return a position twice. The bounds prune partitions.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), gone AS (
  DELETE FROM troupe.outbox o
  USING unnest(@positions::bigint[], @ids::uuid[]) AS acked (position, id)
  WHERE o.position = acked.position
    AND o.id = acked.id
    AND o.position BETWEEN @lowest AND @highest
    AND EXISTS (SELECT FROM lease)
  RETURNING o.position
), cured AS (
  DELETE FROM troupe.outbox_failures t
  USING unnest(@positions::bigint[], @ids::uuid[]) AS acked (position, id)
  WHERE t.position = acked.position
    AND t.id = acked.id
    AND EXISTS (SELECT FROM lease)
)
SELECT (SELECT count(*) FROM lease) AS held,
       (SELECT count(*) FROM gone)  AS deleted
