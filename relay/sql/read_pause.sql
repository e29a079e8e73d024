-- The pause of the outbox. No row: no relay holds its lease.
SELECT paused_at, coalesce(paused_by, ''), coalesce(paused_why, '')
FROM troupe.relay_leases
WHERE shard = @shard
