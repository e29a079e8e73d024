-- Flows of which something was found, each once, by the last message after which that was so.
SELECT max(f.at) AS at, f.correlation
FROM troupe.watch_findings AS f
WHERE f.flow = @flow
  AND f.rule = ANY (@rules::integer[])
  AND (f.came_at IS NOT NULL) = @late
  AND (NOT @of_key::boolean OR f.key = @key)
  AND f.at >= @after
GROUP BY f.correlation
HAVING (max(f.at), f.correlation) < (@at, @id)
ORDER BY 1 DESC, 2 DESC
LIMIT @most
