DELETE FROM troupe.answers
WHERE consumer_group = $1 AND message_type = $2 AND idempotency_key = $3
  AND ($4::xid IS NULL OR xmin = $4)