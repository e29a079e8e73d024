SELECT count(*)
FROM troupe.local_work
WHERE consumer_group = @group
  AND ended_at IS NULL
  AND next_try IS NULL
  AND position <= @last
