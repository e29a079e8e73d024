-- Releases the lease, and wakes the relays that wait for it.
WITH released AS (
  UPDATE troupe.relay_leases
  SET expires_at = clock_timestamp()
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
  RETURNING shard
)
SELECT pg_notify('troupe_relay', '')
FROM released
