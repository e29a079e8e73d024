-- As discard_parked.sql, of a table with a mapping: they go from where the relay keeps them, and their own table is left alone.
WITH chosen AS MATERIALIZED (
  SELECT position
  FROM troupe.mapped_failures
  WHERE table_name = @table
    AND status = 'parked'
    AND CASE WHEN @id::uuid IS NULL THEN topic = @topic AND position > @after ELSE id = @id AND (@topic = '' OR topic = @topic) END
  ORDER BY position
  LIMIT @rows
), parked AS (
  DELETE FROM troupe.mapped_failures t
  USING chosen
  WHERE t.position = chosen.position
    AND t.status = 'parked'
  RETURNING t.position, t.id, t.topic, t.order_key, t.attempts, t.last_error, t.row
), noted AS (
  INSERT INTO troupe.outbox_repairs
    (actor, action, reason, table_name, row_position, row_id, topic, order_key, attempts, last_error, mapped_row)
  SELECT @actor, 'discard', @reason, @table, position, id, topic, order_key, attempts, last_error, row
  FROM parked
)
SELECT position, topic, pg_notify(@channel, '')::text
FROM parked
