-- Deletes the failure records of rows that an operator deleted from the outbox, so that later rows of their keys no longer wait. A stream
-- may write the record of a row before the row is visible, while its commit waits for a synchronous standby. So a record is deleted only
-- when every transaction that was open when the record was written has ended.
DELETE FROM troupe.outbox_failures t
WHERE NOT EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
  AND age(t.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)
