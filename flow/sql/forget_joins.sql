-- Each that begins takes along two that are over.
DELETE FROM troupe.joins AS j
USING (
  SELECT consumer_group, name, key
  FROM troupe.joins
  WHERE forget_at < now()
  ORDER BY forget_at
  LIMIT 2
  FOR UPDATE SKIP LOCKED
) AS old
WHERE j.consumer_group = old.consumer_group
  AND j.name = old.name
  AND j.key = old.key
