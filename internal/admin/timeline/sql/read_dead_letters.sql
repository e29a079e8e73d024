SELECT id::text, consumer_group, left(handler, 1024), error_class, left(error, 2000), attempts, topic, partition, "offset",
       key, headers,
       CASE WHEN octet_length(payload) <= @payload_limit THEN payload END,
       coalesce(octet_length(payload), 0),
       left(message_id, 1024), left(message_type, 1024), left(correlation_id, 1024), redrives, status, first_failed_at, created_at
FROM troupe.dead_letters
WHERE key = @bytes
   OR correlation_id = @text
   OR message_id = @text
   OR id = @id::uuid
ORDER BY created_at DESC
LIMIT @row_limit
