-- Removes the failures of rows that are published now, if the term is still ours.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), cured AS (
  DELETE FROM troupe.mapped_failures
  WHERE table_name = @table
    AND id = ANY(@ids::uuid[])
    AND EXISTS (SELECT FROM lease)
)
SELECT count(*) AS held
FROM lease
