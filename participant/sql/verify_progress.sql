-- Returns whether the lease has a later term, which another member gave it; whether it has the caller's term; and the stored progress: the topic's id,
-- the watermark, and the number of rows of troupe.inbox_offsets. If the lease is gone, there is no row.
SELECT l.term > @term,
       l.term = @term,
       l.topic_id,
       l.watermark,
       (SELECT count(*) FROM troupe.inbox_offsets AS o WHERE o.lease_id = l.id)
FROM troupe.leases AS l
WHERE l.id = @lease
