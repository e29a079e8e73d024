-- The groups with stored answers, by one look-up for each.
WITH RECURSIVE groups (name) AS (
  SELECT min(consumer_group) FROM troupe.answers
  UNION ALL
  SELECT (SELECT min(a.consumer_group) FROM troupe.answers AS a WHERE a.consumer_group > groups.name)
  FROM groups
  WHERE groups.name IS NOT NULL
)
SELECT name
FROM groups
WHERE name IS NOT NULL
