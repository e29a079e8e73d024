-- Makes parked rows due, one by its id or all of a topic above a position, as if each had failed once just now, and records the
-- operator. The failure stays, so that later rows of the key continue to wait for it.
WITH parked AS MATERIALIZED (
  SELECT position, id, topic, order_key, attempts, last_error
  FROM troupe.outbox_failures
  WHERE status = 'parked'
    AND CASE WHEN @id::uuid IS NULL THEN topic = @topic AND position > @after ELSE id = @id AND (@topic = '' OR topic = @topic) END
  ORDER BY position
  LIMIT @rows
  FOR UPDATE
), again AS (
  UPDATE troupe.outbox_failures t
  SET status          = 'retrying',
      attempts        = 1,
      next_try        = clock_timestamp(),
      first_failed_at = clock_timestamp()
  FROM parked
  WHERE t.position = parked.position
), noted AS (
  INSERT INTO troupe.outbox_repairs (actor, action, reason, row_position, row_id, topic, order_key, attempts, last_error)
  SELECT @actor, 'retry', @reason, position, id, topic, order_key, attempts, last_error
  FROM parked
)
SELECT position, topic, pg_notify(@channel, '')::text
FROM parked
