-- Deletes the identity of a deadline's message that was refused: the message may come again when the deadline is there again. See meet.
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
