-- Reports whether list_discards.sql finds discards of any rows.
SELECT EXISTS (
  SELECT
  FROM troupe.outbox_repairs
  WHERE action = 'discard'
    AND lsn > @from::text::pg_lsn
    AND lsn <= pg_current_wal_insert_lsn()
    AND coalesce(table_name, '') = @table)
