INSERT INTO troupe.leases (consumer_group, topic, partition, term, owner, released_at)
VALUES (@group, @topic, @partition, 0, @owner, clock_timestamp())
ON CONFLICT DO NOTHING
