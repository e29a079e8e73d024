-- A failed row of a table with a mapping.
SELECT position, id, event_id, topic, order_key, status, attempts, max_attempts, next_try, last_error, first_failed_at, row
FROM troupe.mapped_failures
WHERE table_name = @table
  AND id = @id
  AND (@topic::text = '' OR topic = @topic)
