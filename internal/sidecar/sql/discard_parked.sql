-- Give a parked row up: its line and the row go, and stand with who wanted it among the repairs.
WITH parked AS (
  DELETE FROM troupe.outbox_trouble
  WHERE id = @id
    AND status = 'parked'
  RETURNING position, id, topic, order_key, attempts, last_error
), gone AS (
  DELETE FROM troupe.outbox o
  USING parked
  WHERE o.position = parked.position
    AND o.id = parked.id
  RETURNING o.position, o.type, o.headers, o.raw_headers, o.payload, o.created_at
), noted AS (
  INSERT INTO troupe.outbox_repairs
    (actor, action, reason, row_position, row_id, topic, order_key, attempts, last_error, type, headers, raw_headers, payload, created_at)
  SELECT @actor, 'discard', @reason, position, id, topic, order_key, attempts, last_error, type, headers, raw_headers, payload, created_at
  FROM parked
  LEFT JOIN gone USING (position)
)
SELECT position, topic, pg_notify(@channel, '')::text
FROM parked
