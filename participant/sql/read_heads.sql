-- Returns the first messages of a held key, in their order: at most @limit, and at most @bytes of keys, headers and payloads, but always the first one.
SELECT position, topic_id, "offset", key, headers, payload, message_time, attempts, first_failed_at,
       coalesce(extract(epoch FROM clock_timestamp() - first_failed_at), 0)::float8 AS failing_for,
       coalesce(extract(epoch FROM next_try - clock_timestamp()), 0)::float8 AS wait,
       extract(epoch FROM clock_timestamp() - created_at)::float8 AS held_for,
       extract(epoch FROM clock_timestamp() - unhandled_since)::float8 AS unhandled_for,
       message_id,
       redrive
FROM (
  SELECT *, sum(bytes) OVER (ORDER BY position) AS bytes_so_far
  FROM (
    SELECT *, coalesce(octet_length(key), 0) + octet_length(headers) + coalesce(octet_length(payload), 0) AS bytes
    FROM troupe.held
    WHERE consumer_group = @group
      AND topic = @topic
      AND partition = @partition
      AND hold_key = @hold_key
    ORDER BY position
    LIMIT @limit) AS first
) AS heads
WHERE bytes_so_far <= @bytes OR bytes_so_far = bytes
ORDER BY position
