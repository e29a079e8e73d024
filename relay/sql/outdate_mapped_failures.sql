-- Clears the places that failed rows have in the log, if the term is still ours: a row without one is before every row of the log.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
)
UPDATE troupe.mapped_failures
SET commit_lsn = NULL,
    commit_row = NULL
WHERE table_name = @table
  AND commit_lsn IS NOT NULL
  AND EXISTS (SELECT FROM lease)
