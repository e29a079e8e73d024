-- Deletes the copies of an event that are kept for a saga.
DELETE FROM troupe.saga_stash
WHERE saga_id = @id
  AND saga_id <> '' -- as the index
  AND message_id = @message
