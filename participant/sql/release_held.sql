DELETE FROM troupe.held
WHERE consumer_group = @group
  AND topic_id = @topic_id
  AND partition = @partition
  AND "offset" = @offset
  AND position = @position
  AND attempts = @attempts
