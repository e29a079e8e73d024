-- Flows that began last, by the first of the messages that nothing caused. A flow without such a message counts by its first message: the one that
-- began it is older than the retention, or was published to a topic that is not watched.
SELECT m.at, m.correlation
FROM troupe.watch_messages AS m
WHERE m.flow = @flow
  AND m.at <= @at
  AND (m.at, m.correlation) < (@at, @id)
  AND m.at >= @after
  AND m.at < @before
  AND CASE
    WHEN m.causation IS NULL THEN (
      SELECT e.id -- no NOT EXISTS, which would be hashed from the messages of all flows
      FROM troupe.watch_messages AS e
      WHERE e.correlation = m.correlation
        AND e.flow = m.flow
        AND e.causation IS NULL
        AND (e.at, e.topic, e.partition, e."offset") < (m.at, m.topic, m.partition, m."offset")
      LIMIT 1) IS NULL
    WHEN (
      SELECT e.id
      FROM troupe.watch_messages AS e
      WHERE e.correlation = m.correlation
        AND e.flow = m.flow
        AND (e.at, e.topic, e.partition, e."offset") < (m.at, m.topic, m.partition, m."offset")
      LIMIT 1) IS NOT NULL THEN false
    ELSE ( -- only the first message of a flow comes here
      SELECT b.id
      FROM troupe.watch_messages AS b
      WHERE b.correlation = m.correlation
        AND b.flow = m.flow
        AND b.causation IS NULL
      LIMIT 1) IS NULL
  END
ORDER BY m.at DESC, m.correlation DESC
LIMIT @most
