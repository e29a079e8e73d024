-- As recall_failures.sql, for a mapped table.
UPDATE troupe.mapped_failures
SET next_try = clock_timestamp()
WHERE table_name = @table
  AND status = 'retrying' AND next_try > clock_timestamp() + @longest::interval
