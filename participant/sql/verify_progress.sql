-- Returns whether the lease has a later term, which another member gave it, and whether the database still has everything that the owner of the
-- partition has committed. The database may have more: transactions under way, and transactions whose commit got no answer. If the lease is gone,
-- there is no row.
SELECT l.term > @term,
       l.term = @term
       AND l.watermark = @watermark
       AND l.topic_id IS NOT DISTINCT FROM @topic_id::uuid
       AND (SELECT count(*) FROM troupe.inbox_offsets AS o WHERE o.lease_id = l.id) >= @rows::bigint
FROM troupe.leases AS l
WHERE l.id = @lease
