SELECT headers, topic, CASE WHEN message_type = @retry_event THEN payload END
FROM troupe.dead_letters
WHERE id = @id::uuid
  AND consumer_group = @group
