SELECT topic_id, low, high, offsets, epoch FROM troupe.inbox_offsets WHERE lease_id = $1
