-- Who leads, and for how much longer by the database's clock: not at all, when it streams a slot no more, or when the lease
-- would last longer than any that a relay takes: the clock that it was taken by was ahead.
SELECT holder, term, shards,
       CASE
         WHEN slot IS NOT NULL AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_name = l.slot AND s.active)
           OR slot IS NULL AND expires_at > clock_timestamp() + @longest::interval
         THEN '0'
         ELSE expires_at - clock_timestamp()
       END AS remaining
FROM troupe.relay_leases l
WHERE shard = @shard
