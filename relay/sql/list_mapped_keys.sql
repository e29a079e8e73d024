-- As list_failed_keys.sql. The first row of a key is that of the lowest commit, and of the lowest number in it; both are one number
-- here, of which a minimum is read without a sort.
SELECT key, rows, ('0/0'::pg_lsn + div(lowest, 4294967296))::text AS commit_lsn, mod(lowest, 4294967296)::bigint AS commit_row
FROM (
  SELECT coalesce(order_key, uuid_send(id)) AS key, count(*) AS rows,
         min(coalesce(commit_lsn - '0/0'::pg_lsn, 0) * 4294967296 + coalesce(commit_row, 0)) AS lowest
  FROM troupe.mapped_failures
  WHERE table_name = @table
  GROUP BY 1
) AS failed
