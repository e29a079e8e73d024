-- Deletes many rows whose positions are close together, and none of which failed before, by one walk from the lowest to the highest. It
-- finds rows by position and by id, since another row of the range may have the same id: a redrive and the copy of a dead letter have the
-- id of their message. The sum position + 0 keeps the positions out of the index condition, which would search the index for each. If fewer
-- rows are deleted than were requested, the relay runs delete_rows.sql next.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
)
DELETE FROM troupe.outbox o
WHERE o.position BETWEEN @lowest AND @highest
  AND o.position + 0 = ANY (@positions::bigint[])
  AND o.id = ANY (@ids::uuid[])
  AND EXISTS (SELECT FROM lease)
