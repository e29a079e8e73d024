-- As in recall_failures.sql.
UPDATE troupe.mapped_failures
SET next_try = clock_timestamp()
WHERE table_name = @table
  AND status = 'retrying' AND next_try > clock_timestamp() + @longest::interval
