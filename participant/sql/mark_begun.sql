-- The row says that a forward call began whose effects outside the database may have taken place. Each failed run makes it
-- younger, so that it is kept as long as an answer to the call would be.
INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, command_key)
VALUES (@group, @operation, @saga, 'begun', '', '', @command_key)
ON CONFLICT (consumer_group, message_type, idempotency_key) DO UPDATE
SET answered_at = excluded.answered_at
