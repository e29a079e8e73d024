-- Returns the partitions that the group has consumed, each with the offset up to which all messages have ended.
SELECT topic, partition, watermark
FROM troupe.leases
WHERE consumer_group = @group
