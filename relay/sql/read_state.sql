SELECT source, system_id, timeline, published::text, sweep::text, lsn::text, publication
FROM troupe.relay_state
WHERE slot = @slot
