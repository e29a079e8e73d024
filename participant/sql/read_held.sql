-- The rows of a key whose headers have the saga's id and the step somewhere: which of them are its calls is read from the
-- headers. All of the key are looked at, since one behind many others would run although its compensation has come.
SELECT position, topic_id, "offset", headers, attempts, message_id
FROM troupe.held
WHERE consumer_group = @group
  AND topic = @topic
  AND partition = @partition
  AND hold_key = @hold_key
  AND position(@saga::bytea IN headers) > 0
  AND position(@step::bytea IN headers) > 0
ORDER BY position
