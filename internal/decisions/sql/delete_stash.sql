-- Deletes an event for the next saga of one association. find_stash.sql explains the subquery of saga_id.
DELETE FROM troupe.saga_stash
WHERE saga = @saga
  AND variable = @variable
  AND value = @value
  AND saga_id = (SELECT '')
  AND message_id = @message
