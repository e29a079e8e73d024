-- Reads the holder of each shard, and for how much longer its lease lasts by the database's clock; 0 as in read_lease.sql.
SELECT shard, holder,
       CASE
         WHEN shard > 0 AND expires_at > clock_timestamp() + @longest::interval THEN '0'
         ELSE expires_at - clock_timestamp()
       END AS remaining,
       shards, layout, wanted
FROM troupe.relay_leases
WHERE shard >= 0 -- the leases of mapped tables have negative numbers
ORDER BY shard
