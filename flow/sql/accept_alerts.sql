-- Stores that the receiver has accepted these alerts. @came tells which of them had the status late. If the event came while
-- its alert with the status missing was posted, the alert with the status late is due at once. A row that a handler has locked
-- is left out: to wait for several rows, in another order than the handler locks them, would be a deadlock.
WITH accepted AS (
  SELECT e.consumer_group, e.name, e.key, t.came
  FROM unnest(@names::text[], @keys::text[], @came::boolean[]) AS t (name, key, came)
  JOIN troupe.expectations AS e ON e.consumer_group = @group AND e.name = t.name AND e.key = t.key
  FOR UPDATE OF e SKIP LOCKED
)
UPDATE troupe.expectations AS e
SET alerted_at = now(),
    alert_at = CASE WHEN e.met_at IS NOT NULL AND NOT t.came THEN now() END
FROM accepted AS t
WHERE e.consumer_group = t.consumer_group
  AND e.name = t.name
  AND e.key = t.key
RETURNING e.name, e.key
