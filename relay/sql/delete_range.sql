-- Deletes many rows of near positions, none of them failed before, by one walk from the lowest to the highest. A row between them
-- may have the id of one of them: a redrive and the copy of a dead letter take the id of their message. The sum keeps the
-- positions out of the index condition, which would search for each. Fewer rows than asked for: see delete_rows.sql.
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
