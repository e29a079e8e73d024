-- Discards that were recorded after an LSN. A restored dump may have discards with LSNs of another cluster, which its own log has not
-- reached yet. The position of a mapped table's row is the position of its record, which the log
-- does not have.
SELECT CASE WHEN table_name IS NULL THEN row_position ELSE 0 END AS row_position, row_id, lsn::text
FROM troupe.outbox_repairs
WHERE action = 'discard'
  AND lsn > @from::text::pg_lsn
  AND lsn <= pg_current_wal_insert_lsn()
  AND coalesce(table_name, '') = @table
