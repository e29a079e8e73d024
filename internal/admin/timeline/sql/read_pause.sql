SELECT paused_at, paused_by, paused_why
FROM troupe.relay_leases
WHERE shard = 0
  AND paused_at IS NOT NULL
