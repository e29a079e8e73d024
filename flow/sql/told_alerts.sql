-- The receiver has accepted these alerts. If an alert called an event missing that has come since then, the next one is due at once.
-- A row that a handler has locked is left out: waiting for several of them in another order than the handler's would be a deadlock.
WITH told AS (
  SELECT e.consumer_group, e.name, e.key, t.came
  FROM unnest(@names::text[], @keys::text[], @came::boolean[]) AS t (name, key, came)
  JOIN troupe.expectations AS e ON e.consumer_group = @group AND e.name = t.name AND e.key = t.key
  FOR UPDATE OF e SKIP LOCKED
)
UPDATE troupe.expectations AS e
SET alerted_at = now(),
    alert_at = CASE WHEN e.met_at IS NOT NULL AND NOT t.came THEN now() END
FROM told AS t
WHERE e.consumer_group = t.consumer_group
  AND e.name = t.name
  AND e.key = t.key
RETURNING e.name, e.key
