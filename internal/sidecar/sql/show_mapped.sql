-- A parked row of a table with a mapping.
SELECT position, id, event_id, topic, order_key, attempts, last_error, first_failed_at, row
FROM troupe.mapped_trouble
WHERE table_name = @table
  AND status = 'parked'
  AND id = @id
