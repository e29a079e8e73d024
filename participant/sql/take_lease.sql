-- Raises the term by a random number of at most a million. If the database was set back, an owner that the database has lost may still run. The
-- random number makes it unlikely that a new owner gets the term of that owner. A new lease may even have the id of a lost one.
WITH before AS (
  SELECT id, term, released_at FROM troupe.leases WHERE id = @lease FOR UPDATE
)
UPDATE troupe.leases AS l
SET term = l.term + 1 + (random() * 1000000)::bigint, owner = @owner, taken_at = clock_timestamp(), released_at = NULL
FROM before
WHERE l.id = before.id
RETURNING l.term, before.term, before.released_at IS NOT NULL, l.topic_id, l.watermark, l.watermark_epoch
