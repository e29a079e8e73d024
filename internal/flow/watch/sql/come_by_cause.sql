-- Resolves findings of missing messages that have come since, by the message that caused them.
UPDATE troupe.watch_findings AS f
SET came_at = c.at
FROM (
  SELECT rule, about, min(at) AS at
  FROM unnest(@rules::integer[], @abouts::uuid[], @at::timestamptz[]) AS all_of (rule, about, at)
  GROUP BY rule, about
) AS c
WHERE f.flow = @flow AND f.rule = c.rule AND f.about = c.about AND f.came_at IS NULL
RETURNING f.rule, f.about
