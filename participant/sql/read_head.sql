SELECT topic_id, "offset", key, headers, payload, message_time, attempts, first_failed_at,
       coalesce(extract(epoch FROM next_try - clock_timestamp()), 0)::float8 AS wait
FROM troupe.held
WHERE consumer_group = @group
  AND topic = @topic
  AND partition = @partition
  AND hold_key = @hold_key
ORDER BY position
LIMIT 1
