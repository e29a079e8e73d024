-- Deletes a batch of the log of repairs, in its order. An entry stays as long as its dead letter.
WITH due AS (
  SELECT position, at, dead_letter_id
  FROM troupe.repairs
  WHERE position > @after
  ORDER BY position
  LIMIT @limit
), removed AS (
  DELETE FROM troupe.repairs AS r
  USING due AS d
  WHERE r.position = d.position
    AND d.at < @before
    AND NOT EXISTS (SELECT FROM troupe.dead_letters AS l WHERE l.id = d.dead_letter_id OFFSET 0)
  RETURNING r.position
)
SELECT count(*), (SELECT count(*) FROM removed), coalesce(max(position), 0), coalesce(bool_and(at < @before), false)
FROM due
