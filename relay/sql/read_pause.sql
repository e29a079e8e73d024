-- Whether somebody has paused the outbox. No row: nobody holds its lease.
SELECT paused_at, coalesce(paused_by, ''), coalesce(paused_why, '')
FROM troupe.relay_leases
WHERE shard = @shard
