-- Makes alerts that the receiver has not accepted due again after @wait. A row that a handler has locked is left out: it is due
-- again when its lease ends.
WITH failed AS (
  SELECT e.consumer_group, e.name, e.key
  FROM unnest(@names::text[], @keys::text[]) AS f (name, key)
  JOIN troupe.expectations AS e ON e.consumer_group = @group AND e.name = f.name AND e.key = f.key
  WHERE e.alert_at IS NOT NULL
  FOR UPDATE OF e SKIP LOCKED
)
UPDATE troupe.expectations AS e
SET alert_at = now() + make_interval(secs => @wait::float8)
FROM failed AS f
WHERE e.consumer_group = f.consumer_group
  AND e.name = f.name
  AND e.key = f.key
