-- Deletes the failure records of rows that an operator deleted from the outbox, so that later rows of their keys no longer wait. A stream
-- may write the record of a row before the row is visible, while its commit waits for a synchronous standby. So a record is deleted only
-- when every transaction that was open when the record was written has ended.
DELETE FROM troupe.outbox_failures t
WHERE NOT EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
  -- xmin has 32 bits, and age() of a transaction is negative after 2^31 others: the function returns all 64 bits
  AND troupe.outbox_inserted_by('9223372036854775807', t.xmin) < pg_snapshot_xmin(pg_current_snapshot())
