-- Deletes the records of failed rows of a mapped table that come after the given rows of their keys in the log, if the term is still ours. The
-- log is about to deliver them again. A row without a commit was read from the table, and stays.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), deleted AS (
  DELETE FROM troupe.mapped_failures t
  USING unnest(@order_keys::bytea[], @commits::text[], @commit_rows::bigint[]) AS f (order_key, commit_lsn, commit_row)
  WHERE t.table_name = @table
    AND t.order_key = f.order_key
    AND (t.commit_lsn, t.commit_row) > (f.commit_lsn::pg_lsn, f.commit_row)
    AND EXISTS (SELECT FROM lease)
)
SELECT count(*) AS held
FROM lease
