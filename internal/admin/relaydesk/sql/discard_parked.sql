-- Discards parked rows, one by its id or all of a topic above a position: deletes the failure and the row, and records both with the
-- operator among the repairs. An id without a topic discards nothing if rows of several topics are parked under it.
WITH chosen AS MATERIALIZED (
  SELECT position
  FROM troupe.outbox_failures AS f
  WHERE status = 'parked'
    AND CASE
          WHEN @id::uuid IS NULL THEN topic = @topic AND position > @after
          WHEN @topic <> '' THEN id = @id AND topic = @topic
          ELSE id = @id AND NOT EXISTS (
            SELECT
            FROM troupe.outbox_failures AS other
            WHERE other.id = @id
              AND other.status = 'parked'
              AND other.topic <> f.topic)
        END
  ORDER BY position
  LIMIT @rows
), parked AS (
  DELETE FROM troupe.outbox_failures t
  USING chosen
  WHERE t.position = chosen.position
    AND t.status = 'parked'
  RETURNING t.position, t.id, t.topic, t.order_key, t.attempts, t.last_error
), gone AS (
  DELETE FROM troupe.outbox o
  USING parked
  WHERE o.position = parked.position
    AND o.id = parked.id
  RETURNING o.position, o.type, o.headers, o.raw_headers, o.payload, o.created_at
), unscheduled AS ( -- a deadline that has fired and never comes would keep another one from being scheduled
  DELETE FROM troupe.deadlines AS d
  USING parked
  WHERE d.id = parked.id
    AND d.fired_at IS NOT NULL
), noted AS (
  INSERT INTO troupe.outbox_repairs
    (actor, action, reason, row_position, row_id, topic, order_key, attempts, last_error, type, headers, raw_headers, payload, created_at)
  SELECT @actor, 'discard', @reason, position, id, topic, order_key, attempts, last_error, type, headers, raw_headers, payload, created_at
  FROM parked
  LEFT JOIN gone USING (position)
)
SELECT position, topic, pg_notify(@channel, '')::text
FROM parked
