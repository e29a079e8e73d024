-- Inserts or renews the marks of forward calls. A mark means that the call has begun or is about to begin. Each run renews the time of its mark, so
-- that the mark is kept as long as an answer to the call would be. A call whose stored answer is repeated does not begin, and gets no mark.
INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, command_key)
SELECT @group, k.operation, k.saga, 'begun', '', '', ''
FROM (
  SELECT DISTINCT m.operation, m.saga
  FROM unnest((SELECT @operations::text[]), (SELECT @forwards::text[]), (SELECT @sagas::text[]), (SELECT @command_keys::text[]))
    AS m (operation, forward, saga, command_key)
  WHERE NOT EXISTS (
    SELECT FROM troupe.answers AS s
    WHERE s.consumer_group = @group AND s.message_type = m.forward AND s.idempotency_key = m.saga
      AND (s.outcome = 'success' OR s.command_key = m.command_key)
    OFFSET 0)) AS k
ORDER BY k.operation COLLATE "C", k.saga COLLATE "C" -- in the order of the locks of lock_begun.sql
ON CONFLICT (consumer_group, message_type, idempotency_key) DO UPDATE
SET answered_at = excluded.answered_at
RETURNING message_type, idempotency_key, xmin, xmax = 0 -- false if the mark was renewed
