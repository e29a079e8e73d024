-- Lists the discards of rows with an id of @ids that were recorded after the LSN @from, for each row with the LSN of the last one. It leaves
-- out discards with an LSN that the server's log has not reached yet: a restored dump may have such discards, of another cluster. For a row of
-- a mapped table it returns 0 as the position. The stored position is the position of the failure record, which the log does not have.
SELECT CASE WHEN table_name IS NULL THEN row_position ELSE 0 END AS row_position, row_id, max(lsn)::text
FROM troupe.outbox_repairs
WHERE row_id = ANY (@ids::uuid[])
  AND action = 'discard'
  AND lsn > @from::text::pg_lsn
  AND lsn <= pg_current_wal_insert_lsn()
  AND coalesce(table_name, '') = @table
GROUP BY 1, row_id
