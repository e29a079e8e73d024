-- The topics of the rows that are parked under an id.
SELECT DISTINCT left(topic, 249) AS topic
FROM troupe.outbox_failures
WHERE id = @id
  AND status = 'parked'
ORDER BY topic
LIMIT 3
