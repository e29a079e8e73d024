INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload,
                         message_time, max_attempts, message_id, redrive, attempts, next_try, error_class, last_error, first_failed_at,
                         last_failed_at, handler, hop, source, letter_headers, unhandled_since)
VALUES (@group, @topic_id, @partition, @offset, @topic, @hold_key, @key, @headers, @payload,
        @message_time, @max_attempts, @message_id, @redrive, @attempts, clock_timestamp() + make_interval(secs => @wait::float8), @class, @error,
        clock_timestamp(), clock_timestamp(), @handler, @hop, @source, @letter_headers,
        CASE WHEN @unhandled THEN clock_timestamp() END)
ON CONFLICT DO NOTHING
