-- Renews the lease of a mapped table. Unlike renew_lease.sql it does not look for rows: the role of such a relay has no rights on
-- troupe.outbox.
UPDATE troupe.relay_leases
SET expires_at = clock_timestamp() + @length::interval,
    slot       = @slot
WHERE shard = @shard
  AND holder = @holder
  AND term = @term
RETURNING paused_at IS NOT NULL AS paused, false AS found
