-- The other groups whose deadlines are due for an hour and were not fired, with the number of deadlines.
SELECT consumer_group, count(*)
FROM troupe.deadlines
WHERE consumer_group <> @group
  AND fired_at IS NULL
  AND due_at < clock_timestamp() - interval '1 hour'
GROUP BY consumer_group
ORDER BY consumer_group
LIMIT 10
