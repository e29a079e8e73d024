-- Returns whether a deadline has fired and has neither been handled nor become a dead letter after @redrive redrives. If so, and the inbox has the
-- identity of the deadline's message, then that identity is of another message: a sender of commands made that one with the deadline's id.
SELECT EXISTS (
  SELECT
  FROM troupe.deadlines
  WHERE consumer_group = @group
    AND scope = @scope
    AND name = @name
    AND id = @id
    AND fired_at IS NOT NULL
) AND NOT EXISTS (
  SELECT
  FROM troupe.dead_letters
  WHERE message_id = @message_id
    AND consumer_group = @group
    AND redrives = @redrive)
