SELECT count(*) > 0
FROM troupe.unreadable_batches
WHERE consumer_group = @group AND topic_id = @topic_id AND partition = @partition AND "offset" = @offset AND skipped_at IS NOT NULL
