-- Returns when the state of troupe.outbox was stored last, if the table is streamed from the slot, or if its relay is creating the slot:
-- then the state's source is poll, and the lease's is wal. While the table is only polled, it has no slot.
SELECT updated_at
FROM (SELECT slot, source, updated_at FROM troupe.relay_state ORDER BY updated_at DESC LIMIT 1) AS newest
WHERE slot = @slot
  AND (source = 'wal'
       OR EXISTS (SELECT FROM troupe.relay_leases l WHERE l.shard = 0 AND l.source = 'wal' AND l.expires_at > clock_timestamp()))
