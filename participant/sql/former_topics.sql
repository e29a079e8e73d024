-- The topics whose partitions the group has had, but for those that it consumes now.
SELECT DISTINCT topic
FROM troupe.leases
WHERE consumer_group = @group
  AND topic <> ALL (@consumed::text[])
ORDER BY topic
