-- update_sagas.sql explains the limit.
DELETE FROM troupe.saga_associations AS a
USING (
  SELECT id
  FROM unnest(@ids::text[]) AS i (id)
  LIMIT @limit::bigint) AS ended
WHERE a.saga_id = ended.id
