-- Deletes a batch of the log of actions on parked rows, in its order. A discard stays as long as a stream may begin at an older LSN, since
-- that stream must skip the discarded row. Of troupe.outbox none may under poll: a later stream begins with a new slot.
WITH due AS (
  SELECT position, at, action, lsn, table_name
  FROM troupe.outbox_repairs
  WHERE position > @after
  ORDER BY position
  LIMIT @limit
), removed AS (
  DELETE FROM troupe.outbox_repairs AS r
  USING due AS d
  WHERE r.position = d.position
    AND d.at < @before
    AND (d.action <> 'discard' OR d.lsn <= coalesce(
           CASE
             WHEN d.table_name IS NULL
             THEN (SELECT CASE s.source WHEN 'wal' THEN s.lsn END FROM troupe.relay_state AS s ORDER BY s.updated_at DESC LIMIT 1)
             ELSE (SELECT CASE m.source WHEN 'wal' THEN m.lsn END FROM troupe.mapped_tables AS m WHERE m.name = d.table_name)
           END, d.lsn))
  RETURNING r.position
)
SELECT count(*), (SELECT count(*) FROM removed), coalesce(max(position), 0), coalesce(bool_and(at < @before), false)
FROM due
