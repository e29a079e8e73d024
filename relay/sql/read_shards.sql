-- Who holds what, and for how much longer by the database's clock.
SELECT shard, holder, expires_at - clock_timestamp() AS remaining, shards, layout, wanted
FROM troupe.relay_leases
WHERE shard >= 0 -- below are the leases of tables with a mapping
ORDER BY shard
