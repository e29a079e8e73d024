SELECT coalesce(max(position), 0)
FROM troupe.local_work
WHERE consumer_group = @group
