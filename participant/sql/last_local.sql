-- Returns the last position of the group's local work; 0 if there is none.
SELECT coalesce(max(position), 0)
FROM troupe.local_work
WHERE consumer_group = @group
