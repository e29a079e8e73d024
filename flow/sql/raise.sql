WITH waits AS (
  SELECT consumer_group, name, key, headers, payload
  FROM troupe.expectations
  WHERE consumer_group = @group
    AND name = @name
    AND key = @key
    AND met_at IS NULL
    AND raised_at IS NULL
  FOR UPDATE
), raised AS (
  UPDATE troupe.expectations AS e
  SET raised_at = now(), due_at = least(e.due_at, now()), headers = NULL, payload = NULL, forget_at = now() + make_interval(secs => @retention::float8)
  FROM waits AS w
  WHERE e.consumer_group = w.consumer_group
    AND e.name = w.name
    AND e.key = w.key
)
SELECT headers, payload
FROM waits
