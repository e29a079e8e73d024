-- Returns when the state of troupe.outbox was stored last, if the table is streamed from the slot. While it is polled, it has no slot.
SELECT updated_at
FROM (SELECT slot, source, updated_at FROM troupe.relay_state ORDER BY updated_at DESC LIMIT 1) AS newest
WHERE slot = @slot
  AND source = 'wal'
