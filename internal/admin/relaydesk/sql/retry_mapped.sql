-- As retry_parked.sql. The table is named, since two of them may know one id.
WITH parked AS MATERIALIZED (
  SELECT position, id, topic, order_key, attempts, last_error
  FROM troupe.mapped_failures
  WHERE table_name = @table
    AND status = 'parked'
    AND CASE WHEN @id::uuid IS NULL THEN topic = @topic AND position > @after ELSE id = @id AND (@topic = '' OR topic = @topic) END
  ORDER BY position
  LIMIT @rows
  FOR UPDATE
), again AS (
  UPDATE troupe.mapped_failures t
  SET status          = 'retrying',
      attempts        = 1,
      next_try        = clock_timestamp(),
      first_failed_at = clock_timestamp()
  FROM parked
  WHERE t.position = parked.position
), noted AS (
  INSERT INTO troupe.outbox_repairs (actor, action, reason, table_name, row_position, row_id, topic, order_key, attempts, last_error)
  SELECT @actor, 'retry', @reason, @table, position, id, topic, order_key, attempts, last_error
  FROM parked
)
SELECT position, topic, pg_notify(@channel, '')::text
FROM parked
