-- What was in trouble is published, if the term still is ours.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), cured AS (
  DELETE FROM troupe.mapped_trouble
  WHERE table_name = @table
    AND id = ANY(@ids::uuid[])
    AND EXISTS (SELECT FROM lease)
)
SELECT count(*) AS held
FROM lease
