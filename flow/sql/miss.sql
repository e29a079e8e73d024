-- Records each expectation whose time is over, once, the longest overdue first. A locked row is left to the next pass: another
-- member records it, or a handler meets or raises it.
WITH over AS (
  SELECT consumer_group, name, key
  FROM troupe.expectations
  WHERE consumer_group = @group
    AND due_at <= now()
    AND missed_at IS NULL
    AND (met_at IS NULL OR raised_at IS NOT NULL)
  ORDER BY due_at
  LIMIT @limit
  FOR UPDATE SKIP LOCKED
)
UPDATE troupe.expectations AS e
SET missed_at = clock_timestamp(),
    alert_at = CASE WHEN @alerts::boolean THEN now() END
FROM over AS o
WHERE e.consumer_group = o.consumer_group
  AND e.name = o.name
  AND e.key = o.key
RETURNING e.name, e.key
