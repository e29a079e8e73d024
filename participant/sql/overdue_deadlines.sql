-- Returns the other groups with deadlines that have been due for an hour and have not fired, and the number of these deadlines.
SELECT consumer_group, count(*)
FROM troupe.deadlines
WHERE consumer_group <> @group
  AND fired_at IS NULL
  AND due_at < clock_timestamp() - interval '1 hour'
GROUP BY consumer_group
ORDER BY consumer_group
LIMIT 10
