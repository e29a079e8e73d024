-- Stores the source of the holder's rows and the reason for it, for the console.
UPDATE troupe.relay_leases
SET source     = @source,
    source_why = @why
WHERE shard = @shard
  AND holder = @holder
  AND term = @term
