-- Flows that began last, by the first of the messages that nothing caused.
SELECT m.at, m.correlation
FROM troupe.watch_messages AS m
WHERE m.flow = @flow
  AND m.causation IS NULL
  AND m.at <= @at
  AND (m.at, m.correlation) < (@at, @id)
  AND m.at >= @after
  AND m.at < @before
  AND NOT EXISTS (
    SELECT
    FROM troupe.watch_messages AS e
    WHERE e.correlation = m.correlation
      AND e.flow = m.flow
      AND e.causation IS NULL
      AND (e.at, e.topic, e.partition, e."offset") < (m.at, m.topic, m.partition, m."offset"))
ORDER BY m.at DESC, m.correlation DESC
LIMIT @most
