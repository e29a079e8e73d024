-- Deletes the lines of rows that an operator deleted from the outbox, so that later rows of their keys no longer wait. A stream may
-- write the line of a row before the row is visible, while its commit waits for a synchronous standby. So a line is only deleted when
-- every transaction that was open when the line was written has ended.
DELETE FROM troupe.outbox_failures t
WHERE NOT EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
  AND age(t.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)
