-- Parked rows of a table with a mapping, above a position, lowest first.
SELECT position, id, event_id, topic, order_key, attempts, last_error, first_failed_at
FROM troupe.mapped_trouble
WHERE table_name = @table
  AND status = 'parked'
  AND position > @after
  AND (@topic::text = '' OR topic = @topic)
ORDER BY position
LIMIT @rows
