-- Resolves findings of missing messages that have come since, by the key.
UPDATE troupe.watch_findings AS f
SET came_at = c.at
FROM (
  SELECT rule, key, min(at) AS at
  FROM unnest(@rules::integer[], @keys::text[], @at::timestamptz[]) AS all_of (rule, key, at)
  GROUP BY rule, key
) AS c
WHERE f.flow = @flow AND f.rule = c.rule AND f.key = c.key AND f.came_at IS NULL
RETURNING f.rule, f.about
