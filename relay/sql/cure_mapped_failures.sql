-- As cure_failures.sql, for a mapped table.
WITH lease AS MATERIALIZED (
  SELECT term, set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local'
                                                ELSE current_setting('synchronous_commit') END, true)
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
