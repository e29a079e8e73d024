-- Who leads, and for how much longer by the database's clock.
SELECT holder, term, expires_at - clock_timestamp() AS remaining
FROM troupe.relay_leases
WHERE shard = @shard
