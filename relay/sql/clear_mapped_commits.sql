-- Sets the commit of failed rows to null, if the term is still ours. A row without a commit comes before every row of the log.
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
