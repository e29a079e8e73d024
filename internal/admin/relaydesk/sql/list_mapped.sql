-- Failed rows of a table with a mapping, above a position, lowest first; with @status only those.
SELECT position, id, event_id, topic, order_key, status, attempts, max_attempts, next_try, last_error, first_failed_at
FROM troupe.mapped_failures
WHERE table_name = @table
  AND position > @after
  AND (@status::text = '' OR status = @status)
  AND (@topic::text = '' OR topic = @topic)
ORDER BY position
LIMIT @rows
