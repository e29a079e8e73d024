SELECT topic, partition, watermark
FROM troupe.leases
WHERE consumer_group = @group
