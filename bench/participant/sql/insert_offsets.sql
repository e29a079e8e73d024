INSERT INTO troupe.inbox_offsets (lease_id, topic_id, low, high, offsets, epoch)
SELECT id, $3, $4, $5, $6, $7 FROM troupe.leases WHERE id = $1 AND term = $2
