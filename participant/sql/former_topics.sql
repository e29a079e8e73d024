-- Returns the topics that the group consumed, or sent messages to for a retry, and does not consume now.
SELECT DISTINCT topic
FROM troupe.leases
WHERE consumer_group = @group
  AND topic <> ALL (@consumed::text[])
ORDER BY topic
