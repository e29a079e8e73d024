-- Returns the first rows of a key, behind the position @after, whose headers contain the saga's id and the step anywhere. The caller reads the headers
-- to find the calls of the step, and searches all rows of the key: otherwise a call behind many others would run although its compensation has come.
SELECT position, topic_id, "offset", headers, attempts, message_id
FROM troupe.held
WHERE consumer_group = @group
  AND topic = @topic
  AND partition = @partition
  AND hold_key = @hold_key
  AND position(@saga::bytea IN headers) > 0
  AND position(@step::bytea IN headers) > 0
  AND held.position > @after
ORDER BY position
LIMIT @limit
