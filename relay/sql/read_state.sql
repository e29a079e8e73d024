-- Reads the newest state of the outbox. The state may be of any slot, since only the holder of the lease writes it.
SELECT source, system_id, timeline, published::text, sweep::text, lsn::text, publication
FROM troupe.relay_state
ORDER BY updated_at DESC, slot = @slot DESC
LIMIT 1
