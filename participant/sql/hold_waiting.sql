INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload,
                         message_time, max_attempts, message_id, redrive)
VALUES (@group, @topic_id, @partition, @offset, @topic, @hold_key, @key, @headers, @payload,
        @message_time, @max_attempts, @message_id, @redrive)
ON CONFLICT DO NOTHING
