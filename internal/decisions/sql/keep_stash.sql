-- Keeps the events of a key for its saga, so that they do not expire. An event of a value that is about to expire gets another hour: a transaction
-- that prunes the stash at the same time does not see yet that the saga has this value, but sees that the row has changed. find_stash.sql explains
-- the subquery of saga_id, update_sagas.sql the limit.
UPDATE troupe.saga_stash AS s
SET saga_id = CASE WHEN s.variable = '' THEN @id ELSE '' END,
    expires_at = CASE WHEN s.variable <> '' THEN clock_timestamp() + interval '1 hour' END
FROM (
  SELECT *
  FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS v (saga, variable, value)
  LIMIT @limit::bigint) AS w
WHERE s.saga = w.saga
  AND s.variable = w.variable
  AND s.value = w.value
  AND s.saga_id = (SELECT '')
  AND (s.variable = '' OR s.expires_at < clock_timestamp() + interval '30 minutes')
