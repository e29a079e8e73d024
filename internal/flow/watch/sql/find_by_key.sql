-- Flows with messages of a business key, the newest first.
SELECT min(m.at) AS at, m.correlation
FROM troupe.watch_messages AS m
WHERE m.flow = @flow
  AND m.key = @key
GROUP BY m.correlation
HAVING (min(m.at), m.correlation) < (@at, @id)
ORDER BY 1 DESC, 2 DESC
LIMIT @most
