-- Every eighth that begins or is met takes along sixteen that are over.
DELETE FROM troupe.expectations AS j
USING (
  SELECT consumer_group, name, key
  FROM troupe.expectations
  WHERE forget_at < now()
  ORDER BY forget_at
  LIMIT 16
  FOR UPDATE SKIP LOCKED
) AS old
WHERE j.consumer_group = old.consumer_group
  AND j.name = old.name
  AND j.key = old.key
