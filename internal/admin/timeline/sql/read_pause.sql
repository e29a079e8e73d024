SELECT paused_at, left(paused_by, 200), left(paused_why, 2000)
FROM troupe.relay_leases
WHERE shard = 0
  AND paused_at IS NOT NULL
