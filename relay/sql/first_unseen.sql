-- The lowest position from @from on of a waiting row that is not visible: its commit waits for a synchronous standby, or the row was deleted.
SELECT coalesce(min(t.position), 9223372036854775807)
FROM troupe.outbox_failures t
WHERE t.status = 'waiting'
  AND t.position >= @from
  AND NOT EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
