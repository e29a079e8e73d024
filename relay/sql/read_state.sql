-- The newest state of the outbox, under whatever slot name: a lease lets one relay at a time write it.
SELECT source, system_id, timeline, published::text, sweep::text, lsn::text, publication
FROM troupe.relay_state
ORDER BY updated_at DESC, slot = @slot DESC
LIMIT 1
