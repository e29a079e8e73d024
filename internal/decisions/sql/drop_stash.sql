-- Deletes the events that are kept for an ended saga and are for no other one: another saga got them too, or the key finds them.
DELETE FROM troupe.saga_stash
WHERE saga_id = @id
  AND saga_id <> '' -- as the index
  AND (variable = '' OR shared)
