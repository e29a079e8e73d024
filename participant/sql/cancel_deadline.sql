DELETE FROM troupe.deadlines
WHERE consumer_group = @group
  AND scope = @scope
  AND name = @name
