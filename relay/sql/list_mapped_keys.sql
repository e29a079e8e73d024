-- As list_failed_keys.sql, for a mapped table. The first row of a key has the lowest commit LSN and, within it, the lowest row number. Both
-- are packed into one number, so that min() needs no sort.
SELECT key, rows, ('0/0'::pg_lsn + div(lowest, 4294967296))::text AS commit_lsn, mod(lowest, 4294967296)::bigint AS commit_row
FROM (
  SELECT coalesce(order_key, uuid_send(id)) AS key, count(*) AS rows,
         min(coalesce(commit_lsn - '0/0'::pg_lsn, 0) * 4294967296 + coalesce(commit_row, 0)) AS lowest
  FROM troupe.mapped_failures
  WHERE table_name = @table
  GROUP BY 1
) AS failed
