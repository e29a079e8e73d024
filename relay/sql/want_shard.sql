-- Requests a shard from its holder, unless another relay has requested it.
UPDATE troupe.relay_leases
SET wanted = @holder
WHERE shard = @shard
  AND shard > 0
  AND holder = @from
  AND wanted IS NULL
