-- Flows of the last message of each undeclared type.
SELECT max(u.last_at) AS at, u.correlation
FROM troupe.watch_unexpected AS u
WHERE u.flow = @flow
  AND (NOT @of_key::boolean OR EXISTS (
    SELECT
    FROM troupe.watch_messages AS m
    WHERE m.correlation = u.correlation
      AND m.key = @key))
GROUP BY u.correlation
HAVING (max(u.last_at), u.correlation) < (@at, @id)
ORDER BY 1 DESC, 2 DESC
LIMIT @most
