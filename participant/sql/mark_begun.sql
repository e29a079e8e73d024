-- A row says that a forward call may have begun, or is about to. Each run makes it younger, so that it is kept as long as an
-- answer to the call would be.
INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, command_key)
SELECT @group, m.operation, m.saga, 'begun', '', '', ''
FROM unnest((SELECT @operations::text[]), (SELECT @sagas::text[])) AS m (operation, saga)
ON CONFLICT (consumer_group, message_type, idempotency_key) DO UPDATE
SET answered_at = excluded.answered_at
