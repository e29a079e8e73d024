-- Say from where the holder reads, for who looks at the database.
UPDATE troupe.relay_leases
SET source     = @source,
    source_why = @why
WHERE shard = @shard
  AND holder = @holder
  AND term = @term
