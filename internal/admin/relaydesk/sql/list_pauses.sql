-- Who paused and resumed last, the newest first.
SELECT at, actor, action, reason
FROM troupe.relay_pauses
WHERE shard = @shard
ORDER BY position DESC
LIMIT @rows
