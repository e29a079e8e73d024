-- Returns the partitions that the group has consumed, each with the topic's id and the offset up to which all messages have ended.
SELECT topic, partition, topic_id, watermark
FROM troupe.leases
WHERE consumer_group = @group
