-- The topics that the group has consumed or sent messages to for a retry, except those that it consumes now.
SELECT DISTINCT topic
FROM troupe.leases
WHERE consumer_group = @group
  AND topic <> ALL (@consumed::text[])
ORDER BY topic
