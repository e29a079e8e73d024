-- Whether the lease has a later term, so that another member took it, and whether the database still has what the owner of the
-- partition has committed. It may have more: transactions under way, and those whose commit got no answer. A lease that is gone
-- gives no row.
SELECT l.term > @term,
       l.term = @term
       AND l.watermark = @watermark
       AND l.topic_id IS NOT DISTINCT FROM @topic_id::uuid
       AND (SELECT count(*) FROM troupe.inbox_offsets AS o WHERE o.lease_id = l.id) >= @rows::bigint
FROM troupe.leases AS l
WHERE l.id = @lease
