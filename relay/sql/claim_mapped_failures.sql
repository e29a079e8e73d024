-- As claim_failures.sql, for a mapped table. Of the waiting rows it reads only rows above position @after.
SELECT position, id, order_key, row, attempts, failing_for, max_attempts
FROM (
  SELECT t.position, t.id, t.order_key, t.row, t.attempts, clock_timestamp() - t.first_failed_at AS failing_for, t.max_attempts,
         t.row_bytes,
         sum(t.row_bytes) OVER (PARTITION BY ready.due ORDER BY ready.next_try, t.position ROWS UNBOUNDED PRECEDING) AS bytes_so_far
  FROM (
    (SELECT true AS due, t.position, t.next_try
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
    (SELECT false AS due, t.position, NULL::timestamptz AS next_try
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
) AS t
WHERE bytes_so_far - row_bytes <= @bytes / 2
ORDER BY position
