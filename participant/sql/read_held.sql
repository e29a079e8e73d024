SELECT topic_id, "offset", headers, attempts
FROM troupe.held
WHERE consumer_group = @group
  AND topic = @topic
  AND partition = @partition
  AND hold_key = @hold_key
ORDER BY position
LIMIT 1000
