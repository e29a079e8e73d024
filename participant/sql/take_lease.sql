WITH before AS (
  SELECT id, released_at FROM troupe.leases WHERE id = @lease FOR UPDATE
)
UPDATE troupe.leases AS l
SET term = l.term + 1, owner = @owner, taken_at = clock_timestamp(), released_at = NULL
FROM before
WHERE l.id = before.id
RETURNING l.term, before.released_at IS NOT NULL, l.topic_id, l.watermark, l.watermark_epoch
