INSERT INTO troupe.dead_letters (id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition,
                                 "offset", key, headers, payload, message_id, message_type, correlation_id, redrives,
                                 first_failed_at, last_failed_at)
VALUES (@id, @group, @handler, @class, @error, @attempts, @topic, @topic_id, @partition,
        @offset, @key, @headers, @payload, @message_id, @message_type, @correlation_id, @redrives,
        coalesce(@first_failed::timestamptz, clock_timestamp()), coalesce(@last_failed::timestamptz, clock_timestamp()))
ON CONFLICT DO NOTHING
RETURNING first_failed_at, last_failed_at
