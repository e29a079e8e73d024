-- As claim_failures.sql: due, or, behind position @after, waiting for nothing any more.
SELECT position, id, order_key, row, attempts, failing_for, max_attempts
FROM (
SELECT t.position, t.id, t.order_key, t.row, t.attempts, clock_timestamp() - t.first_failed_at AS failing_for, t.max_attempts,
       pg_column_size(t.row) AS bytes,
       sum(pg_column_size(t.row)) OVER (ORDER BY t.position ROWS UNBOUNDED PRECEDING) AS bytes_so_far
FROM (
  (SELECT t.position
   FROM troupe.mapped_failures t
   WHERE t.table_name = @table
     AND t.status = 'retrying' AND t.next_try <= clock_timestamp()
     AND NOT EXISTS (
       SELECT
       FROM (
         SELECT b.table_name, b.position
         FROM troupe.mapped_failures b
         WHERE b.order_key = t.order_key AND b.status <> 'waiting'
         OFFSET 0) AS ahead
       WHERE ahead.table_name = t.table_name
         AND ahead.position < t.position)
   ORDER BY t.next_try
   LIMIT @rows / 2)
  UNION ALL
  (SELECT t.position
   FROM troupe.mapped_failures t
   WHERE t.table_name = @table
     AND t.status = 'waiting'
     AND t.position > @after
     AND NOT EXISTS (
       SELECT
       FROM (
         SELECT b.table_name, b.position
         FROM troupe.mapped_failures b
         WHERE b.order_key = t.order_key AND b.status <> 'waiting'
         OFFSET 0) AS ahead
       WHERE ahead.table_name = t.table_name
         AND ahead.position < t.position)
   ORDER BY t.position
   LIMIT @rows)
) AS ready
JOIN troupe.mapped_failures t ON t.position = ready.position
) AS lowest
WHERE bytes_so_far - bytes <= @bytes
ORDER BY position
