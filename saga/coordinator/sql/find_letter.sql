SELECT headers, topic
FROM troupe.dead_letters
WHERE id = @id::uuid
  AND consumer_group = @group
