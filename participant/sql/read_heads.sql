-- Returns the first messages of a held key, in their order: at most @limit, and at most @bytes of payloads, but always the first one.
SELECT position, topic_id, "offset", key, headers, payload, message_time, attempts, first_failed_at,
       coalesce(extract(epoch FROM next_try - clock_timestamp()), 0)::float8 AS wait,
       extract(epoch FROM clock_timestamp() - created_at)::float8 AS held_for,
       extract(epoch FROM clock_timestamp() - unhandled_since)::float8 AS unhandled_for,
       message_id,
       redrive
FROM (
  SELECT *, sum(coalesce(octet_length(payload), 0)) OVER (ORDER BY position) AS bytes
  FROM (
    SELECT *
    FROM troupe.held
    WHERE consumer_group = @group
      AND topic = @topic
      AND partition = @partition
      AND hold_key = @hold_key
    ORDER BY position
    LIMIT @limit) AS first
) AS heads
WHERE bytes <= @bytes OR bytes = coalesce(octet_length(payload), 0)
ORDER BY position
