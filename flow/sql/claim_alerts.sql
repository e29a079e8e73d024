-- Claims alerts that are due, for the time of a lease: if the member that posts them dies, another member claims them after
-- that time.
WITH due AS (
  SELECT consumer_group, name, key
  FROM troupe.expectations
  WHERE consumer_group = @group
    AND alert_at <= now()
  ORDER BY alert_at, due_at
  LIMIT @limit
  FOR UPDATE SKIP LOCKED
)
UPDATE troupe.expectations AS e
SET alert_at = now() + make_interval(secs => @lease::float8)
FROM due AS d
WHERE e.consumer_group = d.consumer_group
  AND e.name = d.name
  AND e.key = d.key
RETURNING e.name, e.key, e.alert_id, e.after_at, e.due_at, e.missed_at, e.met_at
