-- Deletes the events that are kept for ended sagas and are for no other one: another saga got them too, or the key finds them.
-- update_sagas.sql explains the limit.
DELETE FROM troupe.saga_stash AS s
USING (
  SELECT id
  FROM unnest(@ids::text[]) AS i (id)
  LIMIT @limit::bigint) AS ended
WHERE s.saga_id = ended.id
  AND s.saga_id <> '' -- as the index
  AND (s.variable = '' OR s.shared)
