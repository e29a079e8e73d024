-- As delete_rows.sql, for many rows that stand together and of which none is in trouble: one walk from the lowest to the
-- highest, and of what stands between only those. Fewer than asked for: delete_rows.sql says why.
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
  AND o.id = ANY (@ids::uuid[])
  AND EXISTS (SELECT FROM lease)
