INSERT INTO troupe.unreadable_batches (consumer_group, topic, topic_id, partition, "offset", next_offset, bytes)
VALUES (@group, @topic, @topic_id, @partition, @offset, @next, @bytes)
ON CONFLICT (consumer_group, topic_id, partition, "offset") DO NOTHING
