SELECT name, count(*)
FROM troupe.deadlines
WHERE consumer_group = @group
  AND fired_at IS NULL
  AND name <> ALL (@names::text[])
GROUP BY name
ORDER BY name
LIMIT 10
