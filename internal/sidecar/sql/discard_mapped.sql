-- Give a parked row of a table with a mapping up: it goes from where the relay keeps it, and stands among the repairs with
-- who wanted it. Its own table is left alone.
WITH parked AS (
  DELETE FROM troupe.mapped_trouble
  WHERE table_name = @table
    AND id = @id
    AND status = 'parked'
  RETURNING position, id, topic, order_key, attempts, last_error, row
), noted AS (
  INSERT INTO troupe.outbox_repairs
    (actor, action, reason, table_name, row_position, row_id, topic, order_key, attempts, last_error, mapped_row)
  SELECT @actor, 'discard', @reason, @table, position, id, topic, order_key, attempts, last_error, row
  FROM parked
)
SELECT position, topic, pg_notify(@channel, '')::text
FROM parked
