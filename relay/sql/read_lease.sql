-- Reads the holder of the lease, and for how much longer the lease lasts by the database's clock. That is 0 if the holder no longer streams
-- its slot. It is also 0 if the lease would last longer than any lease that a relay takes: then it was taken while the clock was ahead.
SELECT holder, term, shards,
       CASE
         WHEN slot IS NOT NULL AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_name = l.slot AND s.active)
           OR slot IS NULL AND expires_at > clock_timestamp() + @longest::interval
         THEN '0'
         ELSE expires_at - clock_timestamp()
       END AS remaining
FROM troupe.relay_leases l
WHERE shard = @shard
