-- Deletes the identity of a deadline's message that meet has refused. The message may come again when the deadline's row is there again.
WITH recent AS (
  DELETE FROM troupe.inbox_recent
  WHERE consumer_group = @group
    AND slot = @slot
    AND id = @id
    AND redrive = @redrive
)
DELETE FROM troupe.inbox
WHERE consumer_group = @group
  AND message_id = @message_id
  AND redrive = @redrive
