-- Reads the pause of the outbox. No row: no relay ever held its lease.
SELECT paused_at, coalesce(left(paused_by, 200), ''), coalesce(left(paused_why, 2000), '')
FROM troupe.relay_leases
WHERE shard = @shard
