-- Failed rows of a table with a mapping, above a position, lowest first; with @status only those. The role of the table's relay may write any text.
SELECT position, id, left(event_id, 1024), left(topic, 1024), CASE WHEN octet_length(order_key) <= 8388608 THEN order_key END AS order_key, status,
       attempts, max_attempts, next_try, left(last_error, 2000), first_failed_at
FROM troupe.mapped_failures
WHERE table_name = @table
  AND position > @after
  AND (@status::text = '' OR status = @status)
  AND (@topic::text = '' OR topic = @topic)
ORDER BY position
LIMIT @rows
