-- Returns the lowest position, from @from on, of a waiting row whose key is not blocked, or the largest bigint if there is none. If the
-- claim before it returned no row, this row was not visible to that claim: its commit waits for a synchronous standby, or the row was
-- deleted. OFFSET 0 as in claim_failures.sql.
SELECT coalesce((
  SELECT t.position
  FROM troupe.outbox_failures t
  WHERE t.status = 'waiting'
    AND t.position >= @from
    AND NOT EXISTS (
      SELECT
      FROM (
        SELECT b.position
        FROM troupe.outbox_failures b
        WHERE b.order_key = t.order_key AND b.status <> 'waiting'
        OFFSET 0) AS ahead
      WHERE ahead.position < t.position)
  ORDER BY t.position
  LIMIT 1), 9223372036854775807)
